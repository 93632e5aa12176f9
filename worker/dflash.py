"""Who decodes over a part of its context only (step 8 of a request's path).

dflash is fused attention over chosen parts of a long context, and nothing to do with the
speculative decoding of the same name. It gives up exactness; `kernels.dflash` says how a row
chooses.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Mode(enum.Enum):
    """What a worker is set to, and what a request may wish. AUTO: from a length and batch on."""

    OFF = "off"
    AUTO = "auto"
    ON = "on"


@dataclass(frozen=True, slots=True)
class Dflash:
    """A worker's setting. budget: tokens that a row reads, or that share of its context, if more.

    from_tokens, from_batch: the context and the number of sequences that decode, from which AUTO
    means ON.
    """

    mode: Mode = Mode.OFF
    budget: int = 2048
    share: float = 0.125
    from_tokens: int = 4096
    from_batch: int = 16

    @property
    def is_possible(self) -> bool:
        """Whether any row may read less than all: sketches of keys are kept then."""
        return self.mode is not Mode.OFF

    def budget_for(self, wish: Mode | None, context: int, num_decoding: int) -> int:
        """Returns the tokens that a row may read of its context, 0: all. No wish: as it is set."""
        mode = self.mode if wish is None else wish
        budget = max(self.budget, int(context * self.share))
        if not self.is_possible or mode is Mode.OFF or context <= budget:
            return 0
        if mode is Mode.ON:
            return budget
        pays = context >= self.from_tokens and num_decoding >= self.from_batch
        return budget if pays else 0


OFF = Dflash()
