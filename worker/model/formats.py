"""How a model's numbers are kept, where that is not as they are computed with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Formats:
    """half_weights: of linear layers, as float16. eight_bit_kv: `kernels.eight_bit`.

    sketched_keys: sketches are kept beside keys, as `kernels.dflash` needs them.
    """

    half_weights: bool = False
    eight_bit_kv: bool = False
    sketched_keys: bool = False


PLAIN = Formats()
