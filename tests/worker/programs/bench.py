"""Runs programs in a worker without its door: service, engine thread, and a real small model."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers as t

from tests.worker.desk import Record
from tests.worker.model.tiny import save_tiny
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.engine import Engine, StepReport
from worker.errors import RequestFailed
from worker.intake import Intake
from worker.live import ServiceLimits
from worker.model.interface import Model
from worker.model.loading import LoadOptions, load
from worker.runner import Runner
from worker.scheduler import Scheduler, SchedulerLimits
from worker.service import Service
from worker.submission import NodeOutput, ProgramInput, Session, Submission, Usage
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer

Node = dict[str, Any]
MAX_LEN = 2048


def tiny(vocab_size: int, folder: Path) -> tuple[Any, Model]:
    """A tiny random model over a real tokenizer's vocabulary: its modules and the loaded model."""
    config = t.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    modules = save_tiny(config, folder)
    return modules, load(folder, LoadOptions(num_pages=512, member="lowered", threads=1))


def text(*parts: Any) -> Node:
    return {"op": "text", "text": list(parts)}


def var(name: str) -> Node:
    return {"var": name}


def gen(name: str, max_tokens: int = 4, **more: Any) -> Node:
    return {"op": "gen", "name": name, "max_tokens": max_tokens, **more}


def select(name: str, *choices: Any, **more: Any) -> Node:
    listed = [one if isinstance(one, list) else [one] for one in choices]
    return {"op": "select", "name": name, "choices": listed, **more}


def message(role: str, *body: Node) -> Node:
    return {"op": "message", "role": role, "body": list(body)}


def fork(*branches: list[Node]) -> Node:
    return {"op": "fork", "branches": list(branches)}


def greedy(node: Any) -> Any:
    """Nodes without chance, whatever they ask for."""
    if isinstance(node, list):
        return [greedy(one) for one in node]
    if isinstance(node, dict):
        return {key: 0 if key == "temperature" else greedy(one) for key, one in node.items()}
    return node


@dataclass
class Came:
    """What a program gave. values: by name and index."""

    outputs: list[NodeOutput]
    usage: Usage | None
    error: RequestFailed | None

    @property
    def values(self) -> dict[tuple[str, int], str]:
        found: dict[tuple[str, int], str] = {}
        for output in self.outputs:
            key = (output.name, output.index)
            if output.name:
                found[key] = found.get(key, "") + output.text
        return found

    @property
    def root(self) -> str:
        return next(one.root_text for one in self.outputs if not one.name)

    def last(self, name: str, index: int = 0) -> NodeOutput:
        return next(
            one
            for one in self.outputs
            if (one.name, one.index) == (name, index) and one.finish is not None
        )

    def given(self, count: int) -> tuple[NodeOutput, ...]:
        """What a gateway has of the first outputs, node by node."""
        known: dict[tuple[str, int], NodeOutput] = {}
        for output in self.outputs[:count]:
            if not output.name:
                continue
            key = (output.name, output.index)
            before = known.get(key, NodeOutput(*key))
            known[key] = NodeOutput(
                output.name,
                output.index,
                before.text + output.text,
                before.tokens + output.tokens,
                output.finish,
                output.choice,
                output.scores,
                output.prompt_tokens,
                output.cached_tokens,
            )
        return tuple(known.values())


@dataclass
class Bench:
    """One worker. cache: "radix" or another; see `make`."""

    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate | None
    num_pages: int = 512
    page_size: int = 16
    numbers: int = 0
    record: Record = field(default_factory=Record)

    def __post_init__(self) -> None:
        self.intake = Intake(self.tokenizer, self.template, MAX_LEN, random.Random(0))
        self.pool = PagePool(self.num_pages, self.page_size, keep_freed=True)
        self.cache = RadixCache(self.pool)
        self.scheduler = Scheduler(self.cache, SchedulerLimits(256, 32))

    async def __aenter__(self) -> Bench:
        loop = asyncio.get_running_loop()
        self.service = Service(self.intake, self.tokenizer, ServiceLimits(64, 64))

        def on_report(report: StepReport) -> None:
            loop.call_soon_threadsafe(self.service.on_report, report)

        self.backend = self.model.backend
        runner = Runner(self.model, torch.device("cpu"))
        self.engine = Engine(self.scheduler, runner, on_report)
        self.service.attach(self.engine)
        self.engine.start(lambda: None)
        self.service.connect(self.record)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.engine.stop()
        self.model.backend = self.backend

    async def run(
        self,
        program: Sequence[Node],
        given: Sequence[NodeOutput] = (),
        session: Session | None = None,
        namespace: bytes = b"",
        **more: Any,
    ) -> Came:
        """Runs a program to its end."""
        self.numbers += 1
        number = self.numbers
        self.submit(number, program, given, session, namespace, **more)
        start = len(self.record.outputs)
        async with asyncio.timeout(60):
            while number not in self.record.ends:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        [end] = self.record.ends[number]
        nodes = [node for output in self.record.outputs[start:] for node in output.nodes]
        failed = end if isinstance(end, RequestFailed) else None
        return Came(nodes, end if isinstance(end, Usage) else None, failed)

    def submit(
        self,
        number: int,
        program: Sequence[Node],
        given: Sequence[NodeOutput] = (),
        session: Session | None = None,
        namespace: bytes = b"",
        **more: Any,
    ) -> None:
        told = {"program": list(program), "sampling": {"temperature": 0, "seed": 7}, **more}
        asked = ProgramInput(json.dumps(told).encode(), tuple(given), session)
        self.service.submit(self.record, Submission(number, asked, namespace=namespace))

    async def quiet(self) -> None:
        """Waits until nothing is live and no page is in use."""
        async with asyncio.timeout(20):
            while self.service.num_live or self.engine.load.used_pages:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        self.cache.check()
