"""Checks a machine's GPU: what agrees with the reference, how near to its limits, which tokens/s.

    scale      how large everything is: for a GPU, or to rehearse on a CPU
    batches    batches over pages, built without a model
    machine    what the machine can do: bytes and products a second
    agreement  each member against the reference
    speed      decoding, prefill, shared pages, chosen tiles: one attention at a time
    serving    a model of random weights through the worker's runner, with and without graphs
    findings   what came out: values, a table, JSON
    parts      what is run, one after the other, each for itself

Needs torch, transformers, safetensors and what a member needs (Triton, vLLM); nothing of a gateway.
"""
