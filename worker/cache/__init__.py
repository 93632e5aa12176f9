"""The prefix caches: interchangeable indexes over one pool of K/V pages.

Read `interface`, then `scope` (who shares), `pages` (the pool), `block_hash` (the simpler index),
`radix`, `off`; then `eviction` (whose page goes), `record` and `pins`.
"""
