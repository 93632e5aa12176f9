"""The helper threads that the C kernels share their tasks with."""

from __future__ import annotations

import ctypes
import functools

from kernels.cpu.build import load_library


@functools.cache
def crew_of(threads: int) -> int | None:
    """Returns the address of the process's crew of so many threads, None for one thread.

    Calls from several threads at once are safe: one gets the helpers, the others go alone.
    Raises BuildError when the library can't be built, ValueError for fewer than one thread.
    """
    if threads < 1:
        raise ValueError(f"threads is {threads}, must be at least 1")
    if threads == 1:
        return None
    new_crew = load_library("crew.c").new_crew
    new_crew.argtypes = [ctypes.c_int32]
    new_crew.restype = ctypes.c_void_p
    address: int | None = new_crew(threads)
    return address
