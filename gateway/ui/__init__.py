"""The page `/ui`: what this gateway knows of its fleet and traffic, to look at.

routes     the page, its script and style, and the JSON behind it; who may see them
state      all that is shown, read at most once a second however many look
fleet      workers and links, one row each
history    hit rate, TTFT and TPOT of the last half hour
prefixes   what the last requests shared, as trees, and who holds it
tenants    what each tenant has running and waiting, used, and was refused
misses     why prompts missed, and the last findings
requests   one request's life

Nothing here is on a request's path, and nothing here holds text of a prompt.
"""
