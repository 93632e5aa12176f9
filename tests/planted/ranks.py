"""Faults of a model over several ranks: what goes down the pipe, who is waited for, who is left."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

TESTS = ("tests/worker/test_parallel.py",)

frames = Room("worker/parallel/frames.py", TESTS)
lead = Room("worker/parallel/lead.py", TESTS)
ranks = Room("worker/parallel/ranks.py", TESTS)
rank = Room("worker/parallel/__main__.py", ("tests/worker/test_parallel_process.py",))

FAULTS: tuple[Fault, ...] = (
    frames.fault(
        "targets kept from the other ranks",
        "Where a prompt is scored, the ranks compute logits for fewer rows than rank 0.",
        "replace(row, sample=_ASKS)",
        'replace(row, sample=_ASKS, targets=b"")',
    ),
    frames.fault(
        "all ranks on one device",
        "Every shard is loaded onto the first GPU.",
        'f"cuda:{self.rank}"',
        '"cuda:0"',
    ),
    lead.fault(
        "split step given up between layers",
        "The other ranks wait for a part of a sum that never comes.",
        "logits = self._runner.compute(plan, _go_on)",
        "logits = self._runner.compute(plan, checkpoint)",
    ),
    ranks.fault(
        "step's clock runs on",
        "A worker that has nothing to do is lost once a step's patience is over.",
        "        finally:\n            self._step_since = None\n",
        "        finally:\n            pass\n",
    ),
    ranks.fault(
        "ranks that are left stay when one is lost",
        "Rank 0 waits for their part of a sum, and nothing frees it.",
        "        self._kill()\n        self.on_loss()\n",
        "        self.on_loss()\n",
    ),
    ranks.fault(
        "rank that does not leave stays",
        "A process is left behind when the worker has ended.",
        "        self._kill()\n        self._closed.set()\n",
        "        self._closed.set()\n",
    ),
    ranks.fault(
        "broken sum blamed at once",
        "The log names rank 0, though another rank has ended and the watch was about to say so.",
        "if not self._lost.wait(SETTLE_S):",
        "if not self._lost.is_set():",
    ),
    ranks.fault(
        "error while all load is nobody's",
        "A rank that dies while it loads shows as torch's error, and the worker as a defect.",
        "        except RuntimeError as error:\n            raise self.blame(error) from error\n",
        "        except RuntimeError:\n            raise\n",
    ),
    rank.fault(
        "rank waits for ever for a worker that is gone",
        "In the midst of a sum a rank doesn't see that its pipe has ended.",
        "    time.sleep(LEAVE_S)\n    os._exit(0)\n",
        "",
    ),
    rank.fault(
        "terminal's Ctrl-C ends the ranks",
        "A worker that is to finish what runs loses its ranks at once.",
        "        signal.signal(name, signal.SIG_IGN)\n",
        "        signal.signal(name, signal.SIG_DFL)\n",
    ),
)
