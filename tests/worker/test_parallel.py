"""A model over two processes answers as over one; what rank 0 does when another is lost."""

from __future__ import annotations

import io
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from tests.worker.lab import GREEDY, NUM_TOKENS, Lab, Setting
from tests.worker.model.tiny import GROUPED, LLAMA_SHAPED, OTHERS, save_tiny
from tests.worker.test_runner import PLAN, Successor
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.config import ConfigError, load
from worker.engine import Engine, StepAbandoned, StepReport
from worker.errors import ModelUnavailable, RankLost
from worker.model.errors import UnsupportedModel
from worker.model.loading import LoadOptions
from worker.model.loading import load as load_model
from worker.parallel import frames
from worker.parallel.frames import Assignment, bare, pack, read_assignment, read_plan
from worker.parallel.lead import LeadRunner, leading
from worker.parallel.ranks import Patience, Ranks
from worker.request import Sampling, Stopping
from worker.runner import Runner
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import SequenceSpec, pack_tokens
from worker.sizes import decide
from worker.step import PlanRow, SampleRow, StepPlan, StepResult

FAMILIES: dict[str, Callable[[], Any]] = {**LLAMA_SHAPED, **OTHERS}
SPLITTABLE = sorted(FAMILIES.keys() - {"gpt2", "opt"})
OPTIONS = LoadOptions(num_pages=NUM_TOKENS // 16, member="modules")
WARM = Sampling(temperature=0.8, seed=3)


@dataclass
class SplitLab(Lab):
    """A lab whose plans all ranks compute, on the pools that they have."""

    lead: LeadRunner | None = None

    def make_runner(self) -> LeadRunner:
        assert self.lead is not None
        return self.lead


@contextmanager
def split(folder: Path) -> Iterator[tuple[Any, LeadRunner]]:
    """Rank 0 in the test's own process, and one more."""
    own = Assignment(
        rank=0,
        num_ranks=2,
        store="",
        folder=str(folder),
        num_pages=OPTIONS.num_pages,
        page_size=16,
        attention="auto",
        dtype="float32",
        device="cpu",
        threads=1,
        log_level="warning",
    )
    with leading(own) as ranks, ranks.loading():
        model = load_model(folder, replace(OPTIONS, num_ranks=2))
        yield model, LeadRunner(Runner(model, torch.device("cpu")), ranks)


def prompts() -> list[list[int]]:
    """One stem with several ends, one prompt twice, one far longer than a chunk."""
    generator = torch.Generator().manual_seed(2)
    stem, *rest = (torch.randint(5, 199, (n,), generator=generator).tolist() for n in (40, 9, 90))
    return [stem, [*stem, *rest[0]], [*stem[:25], 7, 8, 9], rest[1], rest[1]]


def answers(lab: Lab, sampling: Sampling) -> list[list[int]]:
    return lab.run(prompts(), 8, sampling, top_logprobs=5)


def assert_alike(one: Lab, two: Lab) -> None:
    """The same tokens in the same order, and logprobs within 1e-4."""
    assert two.output == one.output
    for number, entries in one.logprobs.items():
        for ours, theirs in zip(entries, two.logprobs[number], strict=True):
            for mine, other in zip(ours.top, theirs.top, strict=True):
                assert abs(mine[1] - other[1]) < 1e-4
            assert ours.sampled[0] == theirs.sampled[0]


def compare(folder: Path, settings: list[Setting]) -> None:
    """One rank and two are given the same, cold and then warm, in each setting."""
    whole = load_model(folder, OPTIONS)
    with split(folder) as (shard, lead):
        for setting in settings:
            one, two = Lab(whole, setting), SplitLab(shard, setting, lead=lead)
            for sampling in (GREEDY, GREEDY, WARM):
                assert answers(two, sampling) == answers(one, sampling)
            assert_alike(one, two)
            assert two.scheduler.counters == one.scheduler.counters
            assert two.scheduler.counters.cached_tokens > 0
        scored = scoring_plan()
        ours, theirs = (
            Runner(whole, torch.device("cpu")).run(scored, no_stop),
            lead.run(scored, no_stop),
        )
        assert [one.rank for one in theirs.scored[1]] == [one.rank for one in ours.scored[1]]
        assert theirs.sampled[0].token == ours.sampled[0].token


def scoring_plan() -> StepPlan:
    tokens = prompts()[0]
    sample = SampleRow(GREEDY, len(tokens))
    return StepPlan(
        [PlanRow(1, pack_tokens(tokens), 0, [4, 2, 9], sample, pack_tokens(tokens[1:]))]
    )


def no_stop() -> None:
    """Nobody gives the step up."""


BOTH_CACHES = [Setting(cache=cache, budget=23, member="modules") for cache in ("radix", "block")]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_two_ranks_answer_as_one_cold_and_warm_in_chunks_and_together(
    family: str, tmp_path: Path
) -> None:
    save_tiny(FAMILIES[family](), tmp_path)
    compare(tmp_path, BOTH_CACHES)


@pytest.mark.slow
@pytest.mark.parametrize("family", SPLITTABLE)
def test_two_ranks_answer_as_one_in_every_family_that_can_be_split(
    family: str, tmp_path: Path
) -> None:
    save_tiny(FAMILIES[family](), tmp_path)
    compare(tmp_path, [*BOTH_CACHES, replace(BOTH_CACHES[0], budget=512)])


def test_a_pool_holds_more_tokens_where_heads_are_split(tmp_path: Path) -> None:
    save_tiny(t.LlamaConfig(**GROUPED), tmp_path)
    wanted = {"model": str(tmp_path), "kv_memory": "1MiB", "member": "modules"}
    one, two = (
        decide(load(None, {**wanted, "tensor_parallel": ranks}), tmp_path) for ranks in (1, 2)
    )
    assert two.pages.num_pages == 2 * one.pages.num_pages
    assert two.pages.bytes_per_token * 2 == one.pages.bytes_per_token


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel is 0"),
        ({"tensor_parallel": 2, "member": "lowered"}, "member 'lowered' can't be split"),
        ({"tensor_parallel": 2, "deterministic": True}, "deterministic is true"),
        ({"tensor_parallel": 2, "device": "cuda:1"}, "device is 'cuda:1'"),
    ],
    ids=["none", "lowered", "deterministic", "one-device"],
)
def test_settings_that_can_not_be_had_together_are_refused(
    settings: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        load(None, settings)


def test_what_the_model_or_the_machine_does_not_allow_is_refused_before_loading(
    tmp_path: Path,
) -> None:
    t.LlamaConfig(**GROUPED, architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="tensor_parallel is 4: the model has 2 K/V heads"):
        decide(load(None, {"tensor_parallel": 4}), tmp_path)
    many = torch.cuda.device_count() + 1
    with pytest.raises(ModelUnavailable, match="CUDA device"):
        decide(load(None, {"tensor_parallel": many, "device": "cuda"}), tmp_path)


# What goes down the pipe.


def test_a_plan_comes_out_as_it_went_in_but_for_what_the_sampler_needs() -> None:
    sample = SampleRow(WARM, 9, history=b"long", banned=frozenset({3}), top_logprobs=2)
    row = PlanRow(5, b"\1\0\0\0", 8, [3, 1, 2], sample, b"\2\0\0\0")
    plan = replace(PLAN, rows=[*PLAN.rows, row])
    pipe = io.BytesIO(pack(plan) + pack(bare(plan)))
    assert read_plan(pipe) == plan
    seen = read_plan(pipe)
    assert seen is not None
    assert seen.rows[-1].sample is not None
    assert seen.rows[-1].sample.history == b""
    assert (seen.copies, seen.poison) == (plan.copies, plan.poison)
    pairs = list(zip(seen.rows, plan.rows, strict=True))
    assert all((mine.sample is None) == (its.sample is None) for mine, its in pairs)
    assert all(replace(mine, sample=None) == replace(its, sample=None) for mine, its in pairs)


@pytest.mark.parametrize("cut", [0, 3, 4, 20])
def test_a_pipe_that_ends_ends_the_plans_wherever_it_is_cut(cut: int) -> None:
    pipe = io.BytesIO(pack(PLAN)[:cut])
    assert read_plan(pipe) is None
    assert read_assignment(pipe) is None


def test_a_frame_beyond_its_limit_is_neither_sent_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.BytesIO(pack(PLAN))
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 30)
    with pytest.raises(ValueError, match="at most 30"):
        pack(PLAN)
    assert read_plan(pipe) is None


def test_every_rank_has_a_gpu_of_its_own() -> None:
    ranks = [replace(NOBODY, rank=rank, num_ranks=3, device="cuda") for rank in range(3)]
    assert [one.own_device for one in ranks] == ["cuda:0", "cuda:1", "cuda:2"]
    assert replace(NOBODY, rank=2).own_device == "cpu"


# Rank 0's side, without a model.

SLEEPS = (sys.executable, "-c", "import time; time.sleep(60)")
FAILS = (sys.executable, "-c", "raise SystemExit(7)")
# Reads its assignment, and fails at the first plan.
FAILS_AT_WORK = (
    *(sys.executable, "-c"),
    "import sys; pipe = sys.stdin.buffer; pipe.read(int.from_bytes(pipe.read(4), 'little'));"
    "raise SystemExit(7 if pipe.read(1) else 0)",
)
NOBODY = Assignment(1, 2, "", "", 1, 16, "auto", "float32", "cpu", 1, "warning")


class Watched:
    """Ranks of some program, and what was done when one was lost."""

    def __init__(self, program: tuple[str, ...], patience: Patience) -> None:
        self.told = threading.Event()
        self.statuses: queue.Queue[int] = queue.Queue()
        self.ranks = Ranks([NOBODY], program, patience, self.statuses.put)
        self.ranks.on_loss = self.told.set


def test_a_rank_that_ends_is_told_and_a_process_that_stays_is_ended(
    capfd: pytest.CaptureFixture[str],
) -> None:
    watched = Watched(FAILS, Patience(grace_s=0.2))
    assert watched.statuses.get(timeout=20) == 1
    assert watched.told.is_set()
    assert "worker: Rank 1 of the model ended with status 7." in capfd.readouterr().err
    watched.ranks.close()


def test_a_step_that_nobody_ends_is_a_loss_and_frees_whoever_waits_for_the_rank() -> None:
    watched = Watched(SLEEPS, Patience(step_s=0.3))

    class Waiting(Runner):
        def compute(self, plan: StepPlan, checkpoint: Callable[[], None]) -> torch.Tensor:
            assert watched.told.wait(20)
            raise RuntimeError("Connection closed by peer")

    lead = LeadRunner(Waiting(Successor(), torch.device("cpu")), watched.ranks)
    with pytest.raises(RankLost, match=r"did not compute a step within 0\.3 s"):
        lead.run(PLAN, no_stop)
    watched.ranks.close()
    assert watched.statuses.empty(), "it ended in order"


def test_a_sum_that_breaks_is_blamed_on_the_rank_that_ended() -> None:
    """Rank 0 sees its connection break at once, and the watch a little later why."""
    watched = Watched(FAILS_AT_WORK, Patience())
    with pytest.raises(RankLost, match="Rank 1 of the model ended with status 7"):
        LeadRunner(Failing("compute"), watched.ranks).run(PLAN, no_stop)
    watched.ranks.close()


def test_a_rank_that_ends_while_all_load_is_lost_whatever_torch_says_of_it() -> None:
    watched = Watched(FAILS, Patience())
    with pytest.raises(RankLost, match="ended with status 7"), watched.ranks.loading():
        raise RuntimeError("Connection closed by peer")
    watched.ranks.close()


def test_only_a_step_is_waited_for_with_patience() -> None:
    watched = Watched(SLEEPS, Patience(step_s=0.2, leave_s=0.1))
    lead = LeadRunner(Runner(Successor(), torch.device("cpu")), watched.ranks)
    for _ in range(2):
        lead.run(PLAN, no_stop)
        time.sleep(0.4)
    watched.ranks.close()
    assert watched.ranks.loss is None


def test_a_rank_that_does_not_leave_by_itself_is_killed_and_that_is_no_loss() -> None:
    watched = Watched(SLEEPS, Patience(leave_s=0.1))
    watched.ranks.close()
    assert watched.ranks.loss is None
    assert not watched.told.is_set()


@pytest.fixture
def nobody() -> Iterator[Ranks]:
    """No ranks but the first; a loss is not the end of the test's process."""
    ranks = Ranks([], end_process=lambda _: None)
    yield ranks
    ranks.close()


def test_a_step_is_given_up_at_its_border_only(nobody: Ranks) -> None:
    asked = []
    lead = LeadRunner(Runner(Successor(), torch.device("cpu")), nobody)
    assert len(lead.run(PLAN, lambda: asked.append(1)).sampled) == 2
    assert len(asked) == 1

    def give_up() -> None:
        raise StepAbandoned

    model = Successor()
    with pytest.raises(StepAbandoned):
        LeadRunner(Runner(model, torch.device("cpu")), nobody).run(PLAN, give_up)
    assert not model.pages.done


class Failing(Runner):
    """Fails where the ranks work together, or in the sampler, which is rank 0's alone."""

    def __init__(self, where: str) -> None:
        super().__init__(Successor(), torch.device("cpu"))
        self.where = where

    def compute(self, plan: StepPlan, checkpoint: Callable[[], None]) -> torch.Tensor:
        if self.where == "compute":
            raise ValueError("planted")
        return super().compute(plan, checkpoint)

    def draw(self, plan: StepPlan, logits: torch.Tensor) -> StepResult:
        raise ValueError("planted")


def test_only_what_all_ranks_do_together_costs_the_worker(nobody: Ranks) -> None:
    with pytest.raises(ValueError, match="planted"):
        LeadRunner(Failing("draw"), nobody).run(PLAN, no_stop)
    with pytest.raises(RankLost, match=r"Rank 0 failed .*planted"):
        LeadRunner(Failing("compute"), nobody).run(PLAN, no_stop)


def test_an_engine_whose_ranks_are_lost_ends_and_fails_nobody(nobody: Ranks) -> None:
    reports: queue.Queue[StepReport] = queue.Queue()
    ended = threading.Event()
    scheduler = Scheduler(RadixCache(PagePool(16, 4)), SchedulerLimits(32, 8))
    lead = LeadRunner(Failing("compute"), nobody)
    engine = Engine(scheduler, lead, reports.put)
    engine.start(ended.set)
    engine.submit([SequenceSpec(1, CacheScope(), pack_tokens([1, 2]), GREEDY, Stopping(4))])
    assert ended.wait(20)
    assert engine.broken
    assert reports.empty()
    engine.stop()
