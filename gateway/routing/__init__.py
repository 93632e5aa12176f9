"""Which worker, and why.

route        the values: what is wanted, where it goes
prefix       a prompt as a chain of digests at its boundaries
density      tokens per byte, learned
index        which workers hold a boundary
ring         consistent hashing: who is asked where no cache decides
demand       what many prompts begin with
work         what every worker was lately assigned
warmup       the slice of a worker that has just come
roster       the workers of one model: seats in the index, ring, work
cost         what a prompt costs on a worker
policies     the rules
router       the choice
"""
