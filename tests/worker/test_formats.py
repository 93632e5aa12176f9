"""Weights as float16, K/V in eight bits, dflash: near to the whole, and the same for every path."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from transformers import LlamaConfig

from tests.worker.lab import Lab, Setting, load_member
from tests.worker.model.tiny import BASE, LLAMA_SHAPED, save_tiny
from worker.dflash import OFF, Dflash, Mode
from worker.model.errors import UnsupportedModel
from worker.model.formats import PLAIN, Formats
from worker.model.interface import Model
from worker.model.loading import LoadOptions, load
from worker.request import TokenLogprobs

RNG = random.Random(3)
PROMPT = [RNG.randrange(5, 199) for _ in range(180)]
NEW_TOKENS = 20
FORMATS = {
    "half": Formats(half_weights=True),
    "eight": Formats(eight_bit_kv=True),
    "all": Formats(True, True, True),
}
SPARSE = Dflash(Mode.ON, budget=112, share=0.0)
Answer = tuple[list[int], list[TokenLogprobs]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny(LLAMA_SHAPED["qwen3"](), folder)
    return folder


def answer(lab: Lab, prompt: list[int]) -> Answer:
    [output] = lab.run([prompt], NEW_TOKENS, top_logprobs=3)
    return output, lab.logprobs[len(lab.output)]


def two_turns(model: Model, cache: str, dflash: Dflash = OFF) -> tuple[Answer, Answer, list[int]]:
    """A prompt, then the chat's next turn; and what each found in the cache."""
    lab = Lab(model, Setting(cache, dflash=dflash))
    first = answer(lab, PROMPT)
    second = answer(lab, [*PROMPT, *first[0], 7, 8, 9])
    return first, second, list(lab.first_cached.values())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cache", ["radix", "block"])
def test_formats_give_the_same_bits_with_and_without_a_cache(
    name: str, cache: str, folder: Path
) -> None:
    model = load_member(folder, "lowered", FORMATS[name])
    assert model.bitwise
    warm, cold = two_turns(model, cache), two_turns(model, "off")
    assert warm[:2] == cold[:2]
    assert warm[2][1] >= 192 > cold[2][1] == 0


@pytest.mark.parametrize("name", ["half", "eight"])
def test_formats_are_near_to_the_whole_and_not_equal(name: str, folder: Path) -> None:
    whole = answer(Lab(load_member(folder, "lowered"), Setting()), PROMPT)
    other = answer(Lab(load_member(folder, "lowered", FORMATS[name]), Setting()), PROMPT)
    gap = abs(whole[1][0].sampled[1] - other[1][0].sampled[1])
    assert 0 < gap < 0.02


def test_dflash_gives_the_same_bits_with_and_without_a_cache(folder: Path) -> None:
    """What it computed is not in the cache: the second turn finds the prompt, and no more."""
    model = load_member(folder, "lowered", Formats(sketched_keys=True))
    warm, cold = two_turns(model, "radix", SPARSE), two_turns(model, "off", SPARSE)
    assert warm[:2] == cold[:2]
    assert warm[2] == [0, len(PROMPT)]
    dense = two_turns(model, "radix")
    assert dense[0] != warm[0]
    assert dense[2][1] > len(PROMPT)


def test_a_budget_that_covers_all_is_dense_bit_for_bit(folder: Path) -> None:
    model = load_member(folder, "lowered", Formats(sketched_keys=True))
    full = Dflash(Mode.ON, budget=2048)
    assert two_turns(model, "radix", full) == two_turns(model, "radix")


def test_the_other_member_reads_as_little(folder: Path) -> None:
    answers = [
        answer(Lab(load_member(folder, member, Formats(sketched_keys=True)), setting), PROMPT)
        for member, setting in (
            ("lowered", Setting(dflash=SPARSE)),
            ("modules", Setting(dflash=SPARSE, member="modules")),
        )
    ]
    assert answers[0][0] == answers[1][0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backend": "gather", "formats": FORMATS["eight"]}, "'gather' keeps no eight bits"),
        ({"page_size": 8, "formats": Formats(sketched_keys=True)}, "page_size is 8"),
        ({"member": "modules", "formats": FORMATS["half"]}, "member is 'modules'"),
    ],
)
def test_what_cannot_be_kept_so_is_refused(
    options: dict[str, object], says: str, folder: Path
) -> None:
    with pytest.raises((UnsupportedModel, ValueError), match=says):
        load(folder, LoadOptions(num_pages=4, **options))  # type: ignore[arg-type]


def test_plain_is_the_default(folder: Path) -> None:
    assert LoadOptions(1).formats == PLAIN


@pytest.mark.parametrize("member", ["lowered", "modules"])
def test_dflash_is_refused_where_more_heads_share_a_kv_head_than_can_be_read(
    member: str, tmp_path: Path
) -> None:
    wide = {**BASE, "num_attention_heads": 32, "num_key_value_heads": 1, "head_dim": 8}
    save_tiny(LlamaConfig(**wide), tmp_path)
    load(tmp_path, LoadOptions(4, member=member))
    with pytest.raises(ValueError, match="dflash: the model has 32 query heads for a K/V head"):
        load(tmp_path, LoadOptions(4, member=member, formats=Formats(sketched_keys=True)))
