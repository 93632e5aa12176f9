"""What clients write is in no log line, metric or internal failure of a worker."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from proto import worker_pb2 as pb
from tests.worker.door import Client, Worker
from worker.logs import FieldFormatter
from worker.telemetry import RequestCounts, Telemetry

SECRET = "Xyzzy-plugh"


def chat(*messages: Any, **variables: Any) -> pb.ChatPrompt:
    encoded = json.dumps(messages).encode()
    return pb.ChatPrompt(messages=encoded, template_kwargs=json.dumps(variables).encode())


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


ASKED: list[dict[str, Any]] = [
    {"chat": chat(user(SECRET))},
    {"chat": chat({"role": SECRET, "content": SECRET})},
    {"chat": chat({"role": "user", "content": {SECRET: SECRET}})},
    {"chat": chat(user("a"), messages=SECRET)},
    {"chat": chat(user("a"), **{SECRET: SECRET, "namespace": SECRET})},
    {"chat": pb.ChatPrompt(messages=b"[" + SECRET.encode())},
    {"text": SECRET},
    {"text": SECRET, "stopping": pb.Stopping(stop=[SECRET], max_tokens=4)},
    {"text": SECRET, "constraint": pb.Constraint(regex=f"{SECRET}(")},
    {"text": SECRET * 500},
    {"text": SECRET, "n": 999},
    {"program": SECRET.encode()},
    {"program": json.dumps({"program": [{"op": SECRET}], "sampling": {}}).encode()},
]


async def test_no_log_line_metric_or_internal_failure_holds_a_prompt(
    worker: Worker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    registry = CollectorRegistry()
    Telemetry(registry)
    registry.register(RequestCounts(worker.service.tallies))
    for number, asked in enumerate(ASKED, 1):
        await client.submit(number, **asked)
        await client.until(number)
    worker.runner.fail_next = True
    await client.submit(99, text=SECRET)
    await client.until(99)
    written = FieldFormatter().format
    lines = "\n".join(written(record) for record in caplog.records)
    assert "step failed" in lines
    assert SECRET not in lines
    assert SECRET not in generate_latest(registry).decode()
    assert SECRET not in client.failure(99).message
    codes = [
        pb.FailureCode.Name(end.code)
        for ends in client.ends.values()
        for end in ends
        if isinstance(end, pb.Failed)
    ]
    assert codes.count("INTERNAL") == 1, "whatever is wrong with a request is told as its fault"
    assert codes.count("INVALID_REQUEST") > 3


def test_a_field_of_any_text_stays_in_its_line() -> None:
    record = logging.makeLogRecord(
        {"name": "pando.worker", "msg": "link open", "levelname": "INFO"}
    )
    record.gateway = "g\n2026-01-31T12:00:00.000Z info forged"
    line = FieldFormatter().format(record)
    assert "\n" not in line
    assert line.endswith('gateway="g\\n2026-01-31T12:00:00.000Z info forged"')
