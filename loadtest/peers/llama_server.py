"""llama.cpp's own HTTP server out of `xllamacpp`, in an interpreter that has nothing of ours.

`python -I loadtest/peers/llama_server.py FILE.gguf PORT THREADS SLOTS SLOT_TOKENS` serves until it
is killed. K/V is in float16, which is llama.cpp's default.
"""

import importlib
import sys
import threading


def main() -> None:
    """Serves."""
    file, port, threads, slots, slot_tokens = sys.argv[1], *map(int, sys.argv[2:])
    library = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = file
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * slot_tokens
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    server = library.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
