"""What must wait: order among tenants and prefixes, and the credit that ends a wait.

fair        who is next: priority, tenants by weight, buckets by static prefix. Pure
credit      whether a worker takes one more
dispatcher  from the queue to workers
"""
