"""A worker that scores or embeds, without a door: built as the program builds it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
import transformers as t

from tests.worker.desk import Record
from tests.worker.loaded import tokenizer_of
from worker.assembly import Plan, make_intake, make_runner, make_scheduler
from worker.config import WorkerConfig
from worker.engine import Engine
from worker.errors import RequestFailed
from worker.live import ServiceLimits
from worker.service import Service
from worker.submission import NamedBoundary, Output, PairInput, Prompt, Submission, Usage, Want
from worker.tasks import sizes_for, trade_of

QWEN: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": 49152,
    "pad_token_id": 2,
}


@dataclass(eq=False)
class Answers(Record):
    """Values and ends by request, in the order of submission."""

    numbers: list[int] = field(default_factory=list)
    by_request: dict[int, Output] = field(default_factory=dict)

    def output(self, request_id: int, output: Output) -> None:
        super().output(request_id, output)
        assert request_id not in self.by_request, "one result each"
        self.by_request[request_id] = output


def plan_of(folder: Path, **settings: Any) -> Plan:
    config = WorkerConfig(model=str(folder), kv_memory="6_144 tokens", **settings)
    tokenizer = tokenizer_of(folder)
    trade = trade_of(config, folder, tokenizer)
    return Plan(config, folder, sizes_for(config, folder, trade.kind), trade, tokenizer)


@dataclass
class Scorer:
    """Runs prompts to their values; all that are given together are submitted together."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        self.plan = plan_of(self.folder, **self.settings)
        self.scheduler = make_scheduler(self.plan)
        intake = make_intake(self.plan)
        self.service = Service(intake, self.plan.tokenizer, ServiceLimits(64, 1024))
        runner = make_runner(self.plan, None)
        self.engine = Engine(self.scheduler, runner, self.service.on_report)
        self.service.attach(self.engine)
        self.numbers = count(1)

    def ask(self, prompts: Sequence[Prompt], want: Want = Want.VALUES, **more: Any) -> Answers:
        record = Answers()
        self.service.connect(record)

        async def submit() -> None:
            for prompt in prompts:
                record.numbers.append(next(self.numbers))
                submission = Submission(record.numbers[-1], prompt, want=want, **more)
                self.service.submit(record, submission)
            while len(record.ends) < len(prompts):
                self.engine.step()
                await asyncio.sleep(0)

        asyncio.run(submit())
        self.service.disconnect(record)
        self.scheduler.cache.check()
        assert self.scheduler.pool.num_used == 0
        return record

    def values(self, prompts: Sequence[Prompt], **more: Any) -> list[tuple[float, ...]]:
        record = self.ask(prompts, **more)
        return [record.by_request[number].values for number in record.numbers]

    def scores(self, query: str, documents: Sequence[str], instruction: str = "") -> list[float]:
        found = self.values([PairInput(query, one, instruction) for one in documents])
        assert all(len(one) == 1 for one in found)
        return [one[0] for one in found]

    def failure(self, prompt: Prompt, want: Want = Want.VALUES, **more: Any) -> RequestFailed:
        [[end]] = self.ask([prompt], want, **more).ends.values()
        assert isinstance(end, RequestFailed)
        return end

    def usage(self, prompt: Prompt, want: Want = Want.VALUES, **more: Any) -> Usage:
        [[end]] = self.ask([prompt], want, **more).ends.values()
        assert isinstance(end, Usage)
        return end

    @property
    def cached_tokens(self) -> int:
        return self.scheduler.counters.cached_tokens


def save(config: Any, auto: Any, tokenizer_from: Path, folder: Path) -> Any:
    """Saves a random model far from uniform, with that folder's tokenizer; returns its modules."""
    torch.manual_seed(0)
    model = auto.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.08)
            else:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_from / name, folder / name)
    return model


def qwen3(smollm2: Path, folder: Path) -> Any:
    """A tiny Qwen3 in the shape of Qwen3-Reranker."""
    return save(t.Qwen3Config(**QWEN, head_dim=32), t.AutoModelForCausalLM, smollm2, folder)


def boundaries(*counts: int) -> tuple[NamedBoundary, ...]:
    return tuple(NamedBoundary(b"digest %d" % one, one) for one in counts)
