"""The `triton` backend: kernels for NVIDIA GPUs, in Triton.

    write, copy   K/V into pages, pages onto pages
    prefill       chunks of several tokens over their pages
    plan          which decode rows read which pages together, decided on the host
    decode        one partial result for each part of the plan, then their merge
    dflash        the tiles that a sparse decode row reads
    attention     the backend: checks, plans, launches
    ahead         compiles all of it without a GPU

`kernels` imports this package only when the backend is asked for: Triton exists on Linux alone.
On a CPU the kernels run in Triton's interpreter (TRITON_INTERPRET=1), for tests.
"""
