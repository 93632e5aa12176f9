"""Groups of prompts with one prefix, by the parameters of three other tools, under their names.

SGLang's bench_serving (generated-shared-prefix), inference-perf of llm-d (shared_prefix), vLLM's
bench serve (prefix_repetition). Lengths are words of our own list, a token each as a rule; the
order is random, as theirs is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from loadtest.load.prompt import Conversation, plain
from loadtest.words import sentence, text

Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Lengths in tokens; sizes: prompts of each group."""

    sizes: tuple[int, ...]
    prefix_len: int
    own_len: int
    output_len: int

    def conversations(self, rng: random.Random) -> list[Conversation]:
        made = []
        for group, size in enumerate(self.sizes):
            prefix = sentence(rng, self.prefix_len)
            for number in range(size):
                whole = prefix + text(rng, self.own_len)
                made.append(plain(f"group-{group}-{number}", "", whole, self.output_len))
        rng.shuffle(made)
        return made


class GeneratedSharedPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SGLang's --gsp-num-groups, --gsp-prompts-per-group, and so on, with its defaults."""

    num_groups: Count = 64
    prompts_per_group: Count = 16
    system_prompt_len: Count = 2048
    question_len: Count = 128
    output_len: Count = 256

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns the groups' prompts in a random order."""
        sizes = (self.prompts_per_group,) * self.num_groups
        groups = _Groups(sizes, self.system_prompt_len, self.question_len, self.output_len)
        return groups.conversations(rng)


class SharedPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """inference-perf's `data.shared_prefix`, without its multi-turn chat."""

    num_groups: Count = 10
    num_prompts_per_group: Count = 10
    system_prompt_len: Count = 100
    question_len: Count = 50
    output_len: Count = 50

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns the groups' prompts in a random order."""
        sizes = (self.num_prompts_per_group,) * self.num_groups
        groups = _Groups(sizes, self.system_prompt_len, self.question_len, self.output_len)
        return groups.conversations(rng)


class PrefixRepetition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's --prefix-repetition-prefix-len, and so on, with its defaults; num_prompts: of all.

    Each prefix has num_prompts // num_prefixes of them, as there.
    """

    num_prompts: Count = 1000
    prefix_len: Count = 256
    suffix_len: Count = 256
    num_prefixes: Count = 10
    output_len: Count = 128

    def __post_init__(self) -> None:
        """Refuse prefixes without a prompt."""
        if self.num_prefixes > self.num_prompts:
            raise ValueError(
                f"num_prefixes is {self.num_prefixes}: at most num_prompts, {self.num_prompts}"
            )

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns the prefixes' prompts in a random order."""
        sizes = (self.num_prompts // self.num_prefixes,) * self.num_prefixes
        groups = _Groups(sizes, self.prefix_len, self.suffix_len, self.output_len)
        return groups.conversations(rng)
