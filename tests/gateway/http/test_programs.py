"""POST /v1/programs: what is refused, what a worker is told, and what comes of its outputs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from gateway.config import LimitConfig, ProgramLimitConfig
from gateway.errors import InvalidRequest
from gateway.http.programs.check import Size
from gateway.http.programs.request import read_program
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker, events_of
from tests.gateway.fake_worker import Line, failing

LIMITS, SIZES = LimitConfig(), ProgramLimitConfig()
Node = dict[str, Any]


def text(*parts: Any) -> Node:
    return {"op": "text", "text": list(parts)}


def var(name: str) -> Node:
    return {"var": name}


def gen(name: str, max_tokens: int = 4, **more: Any) -> Node:
    return {"op": "gen", "name": name, "max_tokens": max_tokens, **more}


def select(name: str, *choices: str, **more: Any) -> Node:
    return {"op": "select", "name": name, "choices": [[one] for one in choices], **more}


def message(role: str, *body: Node) -> Node:
    return {"op": "message", "role": role, "body": list(body)}


def fork(*branches: list[Node]) -> Node:
    return {"op": "fork", "branches": list(branches)}


def body(*program: Node, **more: Any) -> Node:
    return {"model": "tiny", "program": list(program), **more}


def size(*program: Node, **more: Any) -> Size:
    return read_program(json.dumps(body(*program, **more)).encode(), LIMITS, SIZES)[1]


def refused(sizes: ProgramLimitConfig, *program: Node, **more: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        read_program(json.dumps(body(*program, **more)).encode(), LIMITS, sizes)
    return caught.value.param


def test_what_a_program_takes_is_counted() -> None:
    assert size(text("a"), gen("x", 5, n=3)) == Size(2, 15, 3)
    branches = fork([gen("y", 2)], [gen("z", 3, n=2), select("w", "a", "b")])
    assert size(text("a"), branches, text(var("y"))) == Size(6, 8, 4)


@pytest.mark.parametrize(
    ("program", "param"),
    [
        ([], "program"),
        ([{"op": "jump"}], "program[0].op"),
        ([text(var("x"))], "program[0].text[0].var"),
        ([text(var("x")), gen("x")], "program[0].text[0].var"),
        ([gen("x"), gen("x")], "program[1].name"),
        ([gen("x"), fork([gen("x")])], "program[1].branches[0][0].name"),
        ([gen("x", n=2), text(var("x"))], "program[1].text[0].var"),
        ([fork([text(var("y"))], [gen("y")])], "program[0].branches[0][0].text[0].var"),
        ([gen("1x")], "program[0].name"),
        ([gen("x", 0)], "program[0].max_tokens"),
        ([gen("x", regex="a", grammar="b")], "program[0]"),
        ([gen("x", regex="a", json_schema={})], "program[0]"),
        ([gen("x", strange=1)], "program[0].strange"),
        ([select("x")], "program[0].choices"),
        ([select("x", "a", "")], "program[0].choices[1]"),
        ([select("x", "a", method="best")], "program[0].method"),
        ([message("user", gen("x"))], "program[0].body[0]"),
        ([message("system", fork([text("x")]))], "program[0].body[0]"),
        ([message("user", message("user", text("x")))], "program[0].body[0]"),
        ([message("king", text("x"))], "program[0].role"),
        ([text("x"), message("user", text("y"))], "program[0]"),
        ([fork()], "program[0].branches"),
    ],
)
def test_a_program_that_means_nothing_sure_is_refused_by_its_place(
    program: list[Node], param: str
) -> None:
    assert refused(SIZES, *program) == param


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        ([text("x")] * 3, [text("x")] * 4),
        ([fork([text("x")])], [fork([fork([])])]),
        ([fork([])], [fork([], [])]),
        ([select("x", "a", "b")], [select("x", "a", "b", "c")]),
        ([gen("x", 5, n=2)], [gen("x", 1, n=3)]),
        ([gen("x", 5), gen("y", 5)], [gen("x", 5), gen("y", 6)]),
    ],
)
def test_what_is_at_a_limit_is_taken_and_one_more_is_not(
    most: list[Node], beyond: list[Node]
) -> None:
    few = ProgramLimitConfig(nodes=3, depth=1, branches=2, choices=2, n=2, tokens=10)
    assert read_program(json.dumps(body(*most)).encode(), LIMITS, few)
    refused(few, *beyond)


def test_a_program_beyond_the_limits_is_refused() -> None:
    few = ProgramLimitConfig(nodes=3, depth=1, branches=2, choices=2, n=2, tokens=10)
    assert refused(few, *[text("x")] * 4) == "program"
    assert refused(few, fork([fork([text("x")])])) == "program[0].branches[0][0]"
    assert refused(few, fork([], [], [])) == "program"
    assert refused(few, select("x", "a", "b", "c")) == "program[0].choices"
    assert refused(few, gen("x", n=3)) == "program[0].n"
    assert refused(few, gen("x", 6), gen("y", 6)) == "program"
    assert refused(SIZES, gen("x"), session={"ttl_s": 601}) == "session.ttl_s"
    assert refused(SIZES, gen("x"), session={"id": "no"}) == "session.id"


def test_what_was_set_before_may_be_read_across_forks() -> None:
    size(fork([gen("a")], [text(var("a")), gen("b")]), text(var("a"), "x", var("b")), gen("c"))
    size(
        message("user", text("x")),
        message("assistant", text("y"), gen("z")),
        message("user", text(var("z"))),
    )


async def steps(submit: pb.Submit, line: Line) -> None:
    """Two nodes: a generated one in two pieces, and a choice."""
    assert submit.WhichOneof("prompt") == "program"
    done = {node.name for node in submit.nodes if node.finish_reason}
    told = [
        pb.NodeOutput(name="x", text="he", token_ids=b"\1\0\0\0"),
        pb.NodeOutput(
            name="x",
            text="llo",
            token_ids=b"\2\0\0\0",
            finish_reason=pb.STOP,
            prompt_tokens=5,
            cached_tokens=4,
            started_s=0.5,
            ended_s=1.5,
        ),
        pb.NodeOutput(
            name="y",
            text="no",
            finish_reason=pb.STOP,
            choice=1,
            scores=[-2.0, -1.0],
        ),
    ]
    for node in told:
        if node.name not in done:
            line.step(outputs=[pb.Output(request_id=submit.request_id, nodes=[node])])
            await asyncio.sleep(0)
    last = pb.NodeOutput(root_text="A hello no")
    line.step(
        outputs=[pb.Output(request_id=submit.request_id, nodes=[last], finish_reason=pb.STOP)]
    )
    line.done(submit.request_id, completion=2)


PROGRAM = body(text("A "), gen("x"), select("y", "yes", "no"))


async def post(live: Live, sent: Node) -> httpx.Response:
    return await live.http.post("/v1/programs", json=sent)


async def test_a_program_comes_back_whole(serve_linked: Serve, start_worker: StartWorker) -> None:
    worker = await start_worker(script=steps)
    live = await serve_linked(worker)
    answer = (await post(live, PROGRAM)).json()
    assert answer["variables"] == {"x": "hello", "y": "no"}
    assert answer["text"] == "A hello no"
    x, y = answer["nodes"]
    assert (x["op"], x["value"], x["tokens"], x["cached_tokens"]) == ("gen", "hello", 2, 4)
    assert (y["op"], y["scores"], "scores" in x) == ("select", [-2.0, -1.0], False)
    assert answer["usage"]["completion_tokens"] == 2
    told = json.loads(worker.submits[0].program)
    assert told["program"] == PROGRAM["program"]
    assert told["heal"] is True
    assert "seed" in told["sampling"]
    live.assert_nothing_is_left()


async def test_a_stream_tells_pieces_ends_and_the_whole(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    live = await serve_linked(await start_worker(script=steps))
    answer = await post(live, {**PROGRAM, "stream": True})
    *events, last = events_of(answer.text)
    assert last == "[DONE]"
    read = [json.loads(event) for event in events]
    assert [event["event"] for event in read] == ["start", "delta", "delta", "node", "node", "done"]
    assert read[-1]["variables"] == {"x": "hello", "y": "no"}


async def test_what_a_lost_worker_gave_is_told_the_next_one_and_not_given_again(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    async def dies(submit: pb.Submit, line: Line) -> None:
        for piece, last in (("he", False), ("llo", True)):
            node = pb.NodeOutput(name="x", text=piece, token_ids=b"\1\0\0\0")
            if last:
                node.finish_reason = pb.STOP
            line.step(outputs=[pb.Output(request_id=submit.request_id, nodes=[node])])
        line.fail(submit.request_id, pb.DRAINING)

    first = await start_worker(name="a", script=dies)
    other = await start_worker(name="b", script=dies)
    live = await serve_linked(first, other)

    async def then(submit: pb.Submit, line: Line) -> None:
        await (steps if submit.nodes else dies)(submit, line)

    first.script = other.script = then
    answer = (await post(live, PROGRAM)).json()
    assert answer["variables"] == {"x": "hello", "y": "no"}
    [again] = [submit for worker in (first, other) for submit in worker.submits if submit.nodes]
    [node] = again.nodes
    assert (node.text, node.token_ids, node.finish_reason) == ("hello", b"\1\0\0\0" * 2, pb.STOP)
    live.assert_nothing_is_left()


async def test_values_of_an_n_are_told_apart(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    async def three(submit: pb.Submit, line: Line) -> None:
        for index, piece in ((1, "b"), (0, "a"), (2, "c"), (1, "B")):
            node = pb.NodeOutput(name="x", index=index, text=piece, token_ids=b"\1\0\0\0")
            line.step(outputs=[pb.Output(request_id=submit.request_id, nodes=[node])])
        last = pb.Output(request_id=submit.request_id, nodes=[pb.NodeOutput()])
        last.finish_reason = pb.STOP
        line.step(outputs=[last])
        line.done(submit.request_id, completion=4)

    live = await serve_linked(await start_worker(script=three))
    answer = (await post(live, body(text("A "), gen("x", n=3)))).json()
    assert answer["variables"] == {"x": ["a", "bB", "c"]}


async def test_an_error_ends_a_stream_as_an_event(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    async def breaks(submit: pb.Submit, line: Line) -> None:
        node = pb.NodeOutput(name="x", text="he", token_ids=b"\1\0\0\0")
        line.step(outputs=[pb.Output(request_id=submit.request_id, nodes=[node])])
        line.fail(submit.request_id, pb.INVALID_REQUEST, "No such thing.", "program[1]")

    live = await serve_linked(await start_worker(script=breaks))
    events = events_of((await post(live, {**PROGRAM, "stream": True})).text)
    last = json.loads(events[-1])
    assert (last["event"], last["error"]["param"]) == ("error", "program[1]")


async def test_a_session_goes_on_at_its_own_worker(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    workers = [await start_worker(name=name, script=steps) for name in ("a", "b", "c")]
    live = await serve_linked(*workers)
    first = (await post(live, {**PROGRAM, "session": {"ttl_s": 30}})).json()["session"]
    name = first["id"].partition("~")[0]
    assert first["ttl_s"] == 30
    for _ in range(3):
        sent = body(gen("x"), select("y", "a", "b"), session={"id": first["id"], "ttl_s": 20})
        again = (await post(live, sent)).json()["session"]
        assert again == {"id": first["id"], "ttl_s": 20}
    [own] = [worker for worker in workers if worker.name == name]
    assert [submit.session.resumes for submit in own.submits] == [False, True, True, True]
    assert len({submit.session.id for submit in own.submits}) == 1
    ended = (await post(live, body(gen("x"), session={"id": first["id"], "ttl_s": 0}))).json()
    assert ended["session"] is None


async def test_a_session_that_is_gone_is_a_404(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    worker = await start_worker(name="a", script=failing(pb.SESSION_LOST, "Gone."))
    live = await serve_linked(worker)
    for name in ("a", "nobody"):
        answer = await post(live, body(gen("x"), session={"id": f"{name}~abc"}))
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_lost")
