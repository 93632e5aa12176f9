"""The workers: who is live, how loaded, and the link to each.

workers  the live workers and their leases
link     the gRPC stream to one worker
wire     protobuf to our values and back
"""
