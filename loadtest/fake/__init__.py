"""Workers without a model that speak the real contract, so that hundreds fit on one machine.

cache   a finite LRU of prefix boundaries, told as the real caches tell
engine  prefill at a rate, one token per running request and tick
worker  the gRPC door; `python -m loadtest.fake.worker` hosts several in one process
"""
