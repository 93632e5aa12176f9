"""What a program's steps may ask together is reserved; what it used is charged."""

from __future__ import annotations

import json
from typing import Any

import httpx

from gateway.config import LimitConfig, ProgramLimitConfig
from gateway.http.programs.kept import KeptTexts
from gateway.http.programs.prompts import Prompts, prompts_of
from gateway.http.programs.request import read_program
from gateway.request import Ask, Decoding, ProgramPrompt, Sampling, Stopping
from gateway.store.interface import Counts
from gateway.tenancy.estimate import Estimate, estimate
from gateway.tenancy.keys import digest_of
from gateway.tenant_config import TenantConfig, TenantQuota
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker, events_of
from tests.gateway.fake_worker import FakeWorker, Line
from tests.gateway.http.test_programs import (
    Node,
    body,
    fork,
    gen,
    message,
    select,
    steps,
    text,
    var,
)
from tests.gateway.test_billing import used

KEY = {"authorization": "Bearer pnd-test"}
LEAD, MESSAGE = 64, 16


def prompts(*program: Node, kept_bytes: int = 0, **more: Any) -> Prompts:
    sent = json.dumps(body(*program, **more)).encode()
    request, _ = read_program(sent, LimitConfig(), ProgramLimitConfig())
    return prompts_of(request.program, kept_bytes)


def test_a_gen_is_estimated_once_for_each_of_its_values() -> None:
    assert prompts(text("x" * 40), gen("a", 7, n=3)) == Prompts(gens=30)
    assert prompts(text("x" * 40), gen("a", 7), gen("b")) == Prompts(gens=10 + 17)
    assert prompts(text("x" * 40), gen("a", 7), text(var("a")), gen("b")).gens == 10 + 24


def test_a_select_is_bounded_by_all_bytes_of_each_choice_with_the_text_in_front() -> None:
    one = prompts(text("x" * 40), select("s", "yes", "é"))
    assert one == Prompts(selects=43 + 42 + 2 * LEAD)
    twice = select("s", "yes", "é", method="unconditional_likelihood_normalized")
    assert prompts(text("x" * 40), twice).selects == 2 * one.selects
    behind = prompts(text("x" * 40), gen("a", 9), select("s", "yes"), select("t", "no"))
    assert behind.selects == (40 + 9 + 3 + LEAD) + (40 + 9 + 3 + 2 + LEAD)
    read = {"op": "select", "name": "t", "choices": [[var("a"), "!"]]}
    assert prompts(text("x"), gen("a", 9), read).selects == 1 + 9 + 9 + 1 + LEAD


def test_branches_count_what_stands_in_front_of_their_fork_each() -> None:
    branch = [text("yy"), select("s", "a")]
    other = [select("t", "a")]
    found = prompts(text("x" * 10), fork(branch, other), select("u", "a")).selects
    assert found == (10 + 2 + 1) + (10 + 1) + (10 + 1) + 3 * LEAD


def test_messages_and_the_text_of_a_session_count_too() -> None:
    chat = prompts(message("user", text("x" * 8)), message("assistant", gen("a")))
    assert chat.gens == 2 + 2 * MESSAGE
    assert prompts(select("s", "a"), kept_bytes=500, session={"id": "w~a"}).selects == 501 + LEAD


def test_an_estimate_takes_a_programs_prompts_and_what_it_may_generate() -> None:
    prompt = ProgramPrompt(b"{}", text_bytes=40, prompt_tokens=700, tokens=5)
    ask = Ask("trace", "acme", b"acme", prompt, Decoding(Sampling(), Stopping()))
    assert estimate([ask], 200) == Estimate(700, 5, has_steps=True)


def test_the_longest_unused_session_is_forgotten() -> None:
    kept = KeptTexts(most=2)
    for word, num_bytes in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        kept.note(b"acme", word, num_bytes)
    assert [kept.num_bytes(b"acme", word) for word in "abc"] == [3, 0, 4]
    assert kept.num_bytes(b"other", "c") == 0


async def limited(
    serve: Serve, start_worker: StartWorker, limit: int, script: Any = steps
) -> tuple[Live, FakeWorker]:
    worker = await start_worker(name="a", script=script)
    quota = TenantQuota(tokens_per_minute=limit)
    live = await serve(
        worker, tenants=(TenantConfig("acme", (digest_of("pnd-test"),), quota=quota),)
    )
    await live.until_linked("a")
    return live, worker


async def post(live: Live, *program: Node, **more: Any) -> httpx.Response:
    return await live.http.post("/v1/programs", json=body(*program, **more), headers=KEY)


def left(answer: httpx.Response) -> int:
    return int(answer.headers["x-ratelimit-remaining-tokens"])


MANY = [select(f"s{n}", *(f" {n} {k}" for k in range(50))) for n in range(20)]


async def test_many_selects_never_pass_a_limit_that_they_may_exceed(
    serve: Serve, start_worker: StartWorker
) -> None:
    live, worker = await limited(serve, start_worker, 50_000)
    answer = await post(live, text("Once upon a time"), *MANY)
    assert answer.status_code == 429
    assert answer.json()["error"]["param"] == "tokens_per_minute"
    assert "too large" in answer.json()["error"]["message"]
    assert worker.submits == []
    assert (await post(live, text("Once upon a time"), MANY[0])).status_code == 200


async def test_what_was_reserved_and_not_used_comes_back(
    serve: Serve, start_worker: StartWorker
) -> None:
    live, _ = await limited(serve, start_worker, 50_000)
    wanted = prompts(text("Once"), MANY[0]).tokens
    first = await post(live, text("Once"), MANY[0])
    assert left(first) == 50_000 - wanted
    await live.gateway.tenancy.quotas.close()
    # The fake worker tells of seven prompt tokens and two of output.
    again = await post(live, text("Once"), MANY[0])
    assert left(again) in range(50_000 - wanted - 9, 50_000 - wanted + 1)


async def test_a_sessions_text_is_reserved_for_what_goes_on_from_it(
    serve: Serve, start_worker: StartWorker
) -> None:
    async def writes(submit: pb.Submit, line: Line) -> None:
        last = pb.NodeOutput(root_text="é" * 5000)
        ended = pb.Output(request_id=submit.request_id, nodes=[last], finish_reason=pb.STOP)
        line.step(outputs=[ended])
        line.done(submit.request_id, completion=2)

    live, _ = await limited(serve, start_worker, 50_000, writes)
    begun = await post(live, text("A "), gen("x"), session={"ttl_s": 30})
    assert left(begun) > 49_900
    session = {"id": begun.json()["session"]["id"], "ttl_s": 0}
    assert left(await post(live, select("y", "a"), session=session)) <= 40_000


async def test_who_hangs_up_pays_the_steps_that_have_ended(
    serve: Serve, start_worker: StartWorker
) -> None:
    async def hangs(submit: pb.Submit, line: Line) -> None:
        for name, index, tokens in (("x", 0, 300), ("x", 1, 600), ("y", 0, 1000)):
            node = pb.NodeOutput(
                name=name,
                index=index,
                text="a",
                token_ids=b"\1\0\0\0",
                finish_reason=pb.STOP,
                prompt_tokens=tokens,
            )
            line.step(outputs=[pb.Output(request_id=submit.request_id, nodes=[node])])

    live, _ = await limited(serve, start_worker, 50_000, hangs)
    sent = body(text("A "), gen("x", n=2), gen("y"), gen("z"), stream=True)
    async with live.http.stream("POST", "/v1/programs", json=sent, headers=KEY) as answer:
        told = ""
        async for piece in answer.aiter_text():
            told += piece
            if told.count('"event":"node"') == 3:
                break
    assert len(events_of(told)) >= 4
    await live.until(lambda: live.gateway.fleet.in_flight == 0)
    assert await used(live) == Counts(1, 1600, 0, 3)
