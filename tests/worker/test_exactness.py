"""The first promise: the cache changes nothing. Real weights, against transformers' own model.

Greedy output is compared with transformers by teacher forcing (one forward over prompt + output,
whose best token at each position must be ours: by induction the same as its greedy generation),
and on a few prompts, or all under the slow marker, with `generate` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from kernels.interface import AttentionBatch
from tests.worker.lab import Lab, Setting, load_member
from tests.worker.loaded import tokenizer_of
from tests.worker.prompts import PLAIN
from worker.model.interface import Model

NEW_TOKENS = 16
SLOW = pytest.mark.slow
FEW = [0, 11, 20, 30, 38, 47]
UNDER_PRESSURE = [0, 11, 20, 30, 38, 12, 13, 14, 15, 16]


@pytest.fixture(scope="module")
def prompts(smollm2_folder: Path) -> list[list[int]]:
    tokenizer = tokenizer_of(smollm2_folder)
    prompts = [tokenizer.encode(text) for text in PLAIN]
    assert len(prompts) == 50
    return prompts


@pytest.fixture(scope="module")
def reference(smollm2_folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        smollm2_folder, dtype=torch.float32, local_files_only=True
    ).eval()


@pytest.fixture(scope="module")
def lab(smollm2_folder: Path) -> Iterator[Callable[[Setting], Lab]]:
    """Gives every setting an engine, a cache and pages of its own over one model per member."""
    models: dict[str, Model] = {}

    def fresh(setting: Setting) -> Lab:
        if setting.member not in models:
            models[setting.member] = load_member(smollm2_folder, setting.member)
        return Lab(models[setting.member], setting)

    yield fresh
    models.clear()


@pytest.fixture(scope="module")
def answers(lab: Callable[[Setting], Lab], prompts: list[list[int]]) -> list[list[int]]:
    """What the plainest setting gives: no cache, everything together."""
    return lab(Setting(cache="off")).run(prompts, NEW_TOKENS)


def logits_of(reference: Any, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = reference(input_ids=torch.tensor([tokens])).logits[0]
    return logits


def test_greedy_output_is_transformers_on_fifty_prompts(
    reference: Any, prompts: list[list[int]], answers: list[list[int]]
) -> None:
    for prompt, answer in zip(prompts, answers, strict=True):
        best = logits_of(reference, prompt + answer).argmax(-1).tolist()
        assert answer == best[len(prompt) - 1 : -1], prompt


def test_generate_itself_says_the_same(
    reference: Any, prompts: list[list[int]], answers: list[list[int]]
) -> None:
    for index in FEW[:3]:
        assert generated(reference, prompts[index], NEW_TOKENS) == answers[index]


@pytest.mark.slow
def test_generate_itself_says_the_same_on_all_fifty(
    reference: Any, prompts: list[list[int]], lab: Callable[[Setting], Lab]
) -> None:
    ours = lab(Setting()).run(prompts, 32)
    for prompt, answer in zip(prompts, ours, strict=True):
        assert generated(reference, prompt, 32) == answer


def generated(reference: Any, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    made = reference.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return list(made[0, len(prompt) :].tolist())


@pytest.mark.parametrize("cache", ["radix", "block", "off"])
def test_fifty_prompts_together_are_the_same_cold_and_warm(
    lab: Callable[[Setting], Lab], prompts: list[list[int]], answers: list[list[int]], cache: str
) -> None:
    worker = lab(Setting(cache=cache))
    assert worker.run(prompts, NEW_TOKENS) == answers
    cold = worker.scheduler.counters.cached_tokens
    assert worker.run(prompts, NEW_TOKENS) == answers
    gained = worker.scheduler.counters.cached_tokens - cold
    assert (gained > 0) == (cache != "off"), "the cache was not used as meant"


# Further paths, on tiny models: test_same_bits.
ONE_BY_ONE = [
    pytest.param(1, page_size, cache, marks=[] if page_size == 16 and cache == "radix" else SLOW)
    for page_size in (1, 16, 64)
    for cache in ("radix", "block", "off")
]


@pytest.mark.parametrize(
    ("budget", "page_size", "cache"),
    [*ONE_BY_ONE, *((512, size, cache) for size in (1, 64) for cache in ("radix", "block", "off"))],
)
def test_no_page_size_chunk_or_batch_mate_changes_a_token(
    lab: Callable[[Setting], Lab],
    prompts: list[list[int]],
    answers: list[list[int]],
    budget: int,
    page_size: int,
    cache: str,
) -> None:
    setting = Setting(cache=cache, page_size=page_size, budget=budget)
    setting = replace(setting, running=1 if budget == 1 else 64)
    few = [prompts[index][:60] for index in FEW[:4]]
    wanted = [answers[index] for index in FEW[:4]]
    worker = lab(setting)
    assert [worker.run([prompt], NEW_TOKENS)[0] for prompt in few] == wanted
    assert worker.run(few, NEW_TOKENS) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("cache", ["radix", "block", "off"])
@pytest.mark.parametrize("budget", [1, 7, 512])
def test_the_whole_matrix_on_fifty_prompts(
    lab: Callable[[Setting], Lab],
    prompts: list[list[int]],
    answers: list[list[int]],
    page_size: int,
    cache: str,
    budget: int,
) -> None:
    setting = Setting(cache=cache, page_size=page_size, budget=budget, running=min(budget, 64))
    worker = lab(setting)
    for _ in range(2):
        assert worker.run(prompts, NEW_TOKENS) == answers
    assert [worker.run([prompt], NEW_TOKENS)[0] for prompt in prompts] == answers


def test_logprobs_are_bitwise_the_same_whatever_the_cache_did(
    lab: Callable[[Setting], Lab], prompts: list[list[int]]
) -> None:
    seen = []
    for cache in ("off", "radix", "block"):
        for batch in ([47, 48, 49], [49]):
            worker = lab(Setting(cache=cache))
            for _ in range(2):
                worker.run([prompts[index] for index in batch], 8, top_logprobs=5)
                seen.append(worker.logprobs[max(worker.logprobs)])
    assert len(seen[0]) == 8
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("member", ["lowered", "modules"])
def test_logits_agree_with_transformers_within_1e_4(
    lab: Callable[[Setting], Lab], reference: Any, prompts: list[list[int]], member: str
) -> None:
    worker = lab(Setting(member=member))
    assert worker.model.name == member
    for index in (0, 20, 47):
        answer = worker.run([prompts[index]], 8, top_logprobs=20)[0]
        logits = logits_of(reference, prompts[index] + answer)[len(prompts[index]) - 1 : -1]
        theirs = logits.log_softmax(-1)
        for row, entry in zip(theirs, worker.logprobs[max(worker.logprobs)], strict=True):
            for token, logprob in entry.top:
                assert abs(float(row[token]) - logprob) < 1e-4


@pytest.mark.slow
def test_logits_are_as_near_to_the_truth_as_transformers_own(
    lab: Callable[[Setting], Lab],
    reference: Any,
    smollm2_folder: Path,
    prompts: list[list[int]],
) -> None:
    """The truth is float64; two float32 results can't agree better than each agrees with it."""
    exact = AutoModelForCausalLM.from_pretrained(
        smollm2_folder, dtype=torch.float64, local_files_only=True
    ).eval()
    worker = lab(Setting())
    ours = theirs = 0.0
    for prompt in prompts:
        truth = logits_of(exact, prompt)
        ours = max(ours, float((raw_logits(worker, prompt) - truth).abs().max()))
        theirs = max(theirs, float((logits_of(reference, prompt) - truth).abs().max()))
    assert ours < 1e-4
    assert ours <= theirs


def raw_logits(worker: Lab, tokens: list[int]) -> torch.Tensor:
    """Every position's logits of a lone prompt on the first pages."""
    length = len(tokens)
    batch = AttentionBatch(
        query_start=torch.tensor([0, length], dtype=torch.int32),
        context_len=torch.tensor([length], dtype=torch.int32),
        block_table=torch.arange(-(-length // 16), dtype=torch.int32)[None],
        slot_mapping=torch.arange(length),
        page_size=16,
        max_query_len=length,
        max_context_len=length,
    )
    rows = torch.arange(length)
    with torch.inference_mode():
        return worker.model.forward(torch.tensor(tokens), rows, batch, rows)


@pytest.mark.parametrize("cache", ["radix", "block", "off"])
def test_pressure_and_preemption_change_nothing(
    lab: Callable[[Setting], Lab], prompts: list[list[int]], cache: str
) -> None:
    few = [prompts[index] for index in UNDER_PRESSURE]
    wanted = lab(Setting(cache=cache)).run(few, 40)
    worker = lab(Setting(cache=cache, num_tokens=16 * 16))
    assert worker.run(few, 40) == wanted
    assert worker.scheduler.counters.preemptions > 0, "the pool was not under pressure"


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_two_equal_prompts_in_one_step_stay_right(
    lab: Callable[[Setting], Lab], prompts: list[list[int]], count: int
) -> None:
    alone = lab(Setting(cache="off")).run([prompts[49]], count)[0]
    for cache in ("radix", "block"):
        worker = lab(Setting(cache=cache))
        assert worker.run([prompts[49], prompts[49]], count) == [alone, alone]


def test_two_continuations_of_one_prompt_share_a_copied_page(
    lab: Callable[[Setting], Lab], prompts: list[list[int]]
) -> None:
    stem = (prompts[47] + prompts[49])[:100]
    one, two = [*stem, 338, 5, 6, 7], [*stem, 904, 8, 9, 10]
    wanted = lab(Setting(cache="off")).run([one, two], NEW_TOKENS)
    worker = lab(Setting(cache="radix"))
    assert worker.run([one], NEW_TOKENS) == wanted[:1]
    assert worker.run([two], NEW_TOKENS) == wanted[1:]
    assert worker.first_cached[max(worker.first_cached)] == 100
