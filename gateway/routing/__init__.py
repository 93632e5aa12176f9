"""Which worker, and why.

prefix  names of what a prompt begins with
ring    consistent hashing with bounded load
router  the choice
"""
