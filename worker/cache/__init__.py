"""The prefix caches: interchangeable indexes over one pool of K/V pages.

Read `interface`, then `pages` (the pool), `block_hash` (the simpler index), `radix`, `off`.
"""
