"""The group of processes over which a model is split: gloo between CPUs, nccl between GPUs.

Ranks find one another by a file, so nothing listens for that; gloo itself listens on the loopback
interface. Transformers makes its device mesh of the group, from the group and $LOCAL_RANK.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from worker.model.errors import UnsupportedModel
from worker.parallel.frames import Assignment

# Only loading may take long; that a step does not is the watch's business.
TIMEOUT = timedelta(hours=1)
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


def join(assignment: Assignment) -> None:
    """Makes this process the group's member of that rank; returns when all are there.

    Raises UnsupportedModel where transformers would take another device.
    """
    accelerator = torch.accelerator.current_accelerator()
    found = "cpu" if accelerator is None else accelerator.type
    if found != assignment.device:
        raise UnsupportedModel(
            f"device is {assignment.device!r}: with tensor_parallel the model goes to {found!r}, "
            "which this torch finds; hide it (CUDA_VISIBLE_DEVICES=) or set device to it."
        )
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    if assignment.rank:
        os.environ["LOCAL_RANK"] = str(assignment.rank)
    on_gpu = assignment.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(assignment.rank)
    dist.init_process_group(
        BACKENDS[assignment.device],
        store=FileStore(assignment.store, assignment.num_ranks),
        rank=assignment.rank,
        world_size=assignment.num_ranks,
        timeout=TIMEOUT,
        device_id=torch.device(assignment.own_device) if on_gpu else None,
    )


def leave() -> None:
    """Gives the group up, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
