"""How much the random tests try: little in CI, as much as is asked for in `make fuzz`."""

from __future__ import annotations

import os

# On each form of the cache, in lives of so many operations; and lives of the scheduler.
OPERATIONS = int(os.environ.get("PANDO_FUZZ_OPERATIONS", "10000"))
STEPS = int(os.environ.get("PANDO_FUZZ_STEPS", "40"))
LIVES = int(os.environ.get("PANDO_FUZZ_LIVES", "300"))
