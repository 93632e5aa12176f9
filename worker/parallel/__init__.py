"""One model over several ranks: rank 0 decides, every rank computes its shard of each step.

    worker (rank 0)                                   python -m worker.parallel (rank 1, 2, ...)
    engine ── plan ──▶ LeadRunner
                         ranks.step(plan) ── pipe ──▶ queue of plans
                         runner.compute   ◀═ sums ═▶  runner.compute       torch.distributed
                         runner.draw

`frames` is what goes down the pipe, `ranks` the other ranks' processes as rank 0 sees them, `group`
the group of torch.distributed, `lead` rank 0's runner, `__main__` another rank's whole life.
"""
