"""Programs as they are run: at once, many at a time, as streams, on event loops; and mistakes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pydantic
import pytest

import pando
from tests.pando.program_server import ProgramServer, generated, serving


@pando.program
def color(s: pando.State, thing: str = "sky") -> None:
    s += f"The {thing} is" + pando.gen("color", max_tokens=4) + "."
    s += pando.select("sure", ["yes", "no"])


@pando.program
def breaks(s: pando.State, name: str = "breaks") -> None:
    s += pando.gen(name)


@pando.program
def hangs(s: pando.State) -> None:
    s += pando.gen("hangs")


def test_a_run_gives_values_text_and_trace(server: ProgramServer) -> None:
    result = color.run("sea", temperature=0.5, seed=3)
    value = generated("The sea is", {"name": "color", "max_tokens": 4})
    assert result["color"] == value
    assert result.text() == f"The sea is{value}.{result['sure']}"
    assert result.messages() == []
    assert "color" in result
    assert result.usage == pando.Usage(10, 4, 3, 1)
    node, select = result.nodes
    assert (node.op, node.tokens, node.prompt_tokens, node.cached_tokens) == (
        *("gen", len(value)),
        *(10, 5),
    )
    assert (select.op, sorted(select.scores or [])) == ("select", [0.0, 1.0])
    head, *rows = result.trace().splitlines()
    assert head.split() == ["node", "op", "tokens", "prompt", "cached", "seconds", "value"]
    assert rows[0].split()[:6] == ["color", "gen", str(len(value)), "10", "5", "0.250"]
    [body] = server.bodies
    assert body["sampling"] == {"temperature": 0.5, "seed": 3}
    assert (body["model"], body["heal"], body["stream"]) == ("tiny", True, False)


def test_messages_come_by_calls_and_by_with(server: ProgramServer) -> None:
    @pando.program(heal=False)
    def chat(s: pando.State) -> None:
        s += pando.system("Be short.") + pando.user("Hi " + "there")
        with s.assistant():
            s += "Well, " + pando.gen("a")
        s.user("And?")
        s.assistant(pando.gen("b"))

    result = chat.run()
    assert [one["role"] for one in result.messages()] == [
        *("system", "user", "assistant", "user", "assistant")
    ]
    assert result.messages()[2]["content"] == f"Well, {result['a']}"
    assert result.text().startswith("system: Be short.\n\nuser: Hi there\n\nassistant: Well, ")
    assert server.bodies[0]["heal"] is False
    assert len(server.bodies) == 1


def test_all_that_gen_takes_is_sent(server: ProgramServer) -> None:
    class Person(pydantic.BaseModel):
        name: str

    @pando.program
    def full(s: pando.State) -> None:
        s += pando.gen(
            *("a", 5),
            temperature=0.1,
            top_p=0.2,
            top_k=3,
            min_p=0.4,
            seed=-5,
            stop="x",
            regex="a+",
            n=2,
        )
        s += pando.gen("b", stop=["x", "y"], grammar="start: 'a'")
        s += pando.gen("c", json_schema=Person) + pando.gen("d", json_schema={"type": "object"})
        s += pando.gen("e", choices=["p", "q"])
        s += pando.select("f", ["p"], method="greedy_token_selection")

    a, b, c, d, e, f = full.graph()
    sampling = {"temperature": 0.1, "top_p": 0.2, "top_k": 3, "min_p": 0.4, "seed": -5}
    plain = {"op": "gen", "name": "a", "max_tokens": 5, "stop": ["x"], "regex": "a+", "n": 2}
    assert a == {**plain, **sampling}
    assert (b["stop"], b["grammar"]) == (["x", "y"], "start: 'a'")
    assert c["json_schema"]["properties"]["name"]["type"] == "string"
    assert d["json_schema"] == {"type": "object"}
    assert (e["op"], e["choices"], e["method"]) == (
        *("select", [["p"], ["q"]]),
        "token_length_normalized",
    )
    assert f["method"] == "greedy_token_selection"
    assert len(full.run()["a"]) == 2


def test_forks_inherit_values_and_end_when_joined(server: ProgramServer) -> None:
    @pando.program
    def forked(s: pando.State) -> None:
        s += pando.gen("x")
        forks = s.fork(2)
        forks += " then " + pando.gen("y")
        forks[0] += forks[0]["x"] + forks[0]["y"]
        nested = forks[1].fork(1)
        nested += pando.gen("y")
        assert len(forks) == 2
        assert "y" not in s
        s += " ".join(forks["y"])
        forks.join()
        with pytest.raises(pando.BadProgram, match="This fork was joined"):
            forks[1] += "more"

    result = forked.run()
    assert set(result.variables) == {"x", "y#0.0", "y#0.1", "y#0.1.0.0"}
    assert len(server.bodies) == 1


def test_a_batch_keeps_its_order(server: ProgramServer, capsys: pytest.CaptureFixture[str]) -> None:
    things = [{"thing": f"thing {i}"} for i in range(40)]
    results = color.run_batch(things, num_threads=8, progress_bar=True, temperature=0)
    assert [result.text().split(" is")[0] for result in results] == [
        f"The thing {i}" for i in range(40)
    ]
    assert "40/40" in capsys.readouterr().err


def test_one_failure_of_a_batch_loses_no_other(server: ProgramServer) -> None:
    names = [{"name": "a"}, {"name": "breaks"}, {"nome": "c"}, {"name": "d"}]
    with pytest.raises(
        pando.BatchError, match="2 of 4 runs failed; number 1 was the first"
    ) as raised:
        breaks.run_batch(names)
    first, second, third, last = raised.value.outcomes
    assert isinstance(first, pando.Result)
    assert isinstance(second, pando.ProgramError)
    assert isinstance(third, pando.BadProgram)
    assert isinstance(last, pando.Result)
    outcomes = breaks.run_batch(names, return_errors=True)
    assert [type(outcome) for outcome in outcomes] == [type(one) for one in raised.value.outcomes]


def test_a_stream_tells_text_while_it_comes(server: ProgramServer) -> None:
    stream = color.stream()
    events = list(stream)
    told = "".join(one.text for one in events if (one.kind, one.name) == ("delta", "color"))
    assert told == stream.result["color"]
    assert [event.node for event in events if event.kind == "node"] == stream.result.nodes
    assert server.bodies[0]["stream"] is True
    assert list(stream) == []


def test_a_stream_may_hold_what_ends_lines_elsewhere(server: ProgramServer) -> None:
    stream = color.stream("sea\u2028of\x85glass\x1c")
    list(stream)
    assert "sea\u2028of\x85glass\x1c" in stream.result.text()


def test_a_session_streams_too(server: ProgramServer) -> None:
    @pando.program
    def looks(s: pando.State) -> None:
        s += pando.gen("a")
        s += pando.gen("b", max_tokens=len(s["a"]) + 1)

    with looks.stream() as stream:
        names = [event.name for event in stream if event.kind == "node"]
    assert names == ["a", "b"]
    assert stream.result.usage.requests == 2


def test_an_error_in_a_stream_comes_behind_what_was_told(server: ProgramServer) -> None:
    events = iter(breaks.stream())
    assert next(events).text == "half"
    with pytest.raises(pando.ProgramError) as raised:
        next(events)
    assert (raised.value.code, raised.value.param) == ("internal", "program[1]")


def test_a_stream_that_is_closed_hangs_up(server: ProgramServer) -> None:
    with hangs.stream() as stream:
        assert next(iter(stream)).text == "..."
    assert server.hung_up.wait(10)
    with pytest.raises(pando.Stopped):
        _ = stream.result


async def test_on_an_event_loop(server: ProgramServer) -> None:
    results = await asyncio.gather(*(color.arun(str(i)) for i in range(10)))
    assert [result.text().split(" is")[0] for result in results] == [f"The {i}" for i in range(10)]
    stream = color.astream("sea")
    with pytest.raises(pando.ProgramError, match="isn't at its end"):
        _ = stream.result
    told = [event async for event in stream]
    assert told[-1].node == stream.result.nodes[-1]
    with pytest.raises(pando.ProgramError, match="read once"):
        _ = [event async for event in stream]
    with pytest.raises(pando.ProgramError, match=r"The model broke\."):
        _ = [event async for event in breaks.astream()]


async def test_a_cancelled_run_hangs_up(server: ProgramServer) -> None:
    task = asyncio.ensure_future(hangs.arun())
    await asyncio.to_thread(server.hung.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.hung_up.wait, 10)


async def test_an_async_stream_that_is_left_hangs_up(server: ProgramServer) -> None:
    events = aiter(hangs.astream())
    assert (await anext(events)).text == "..."
    await events.aclose()  # type: ignore[attr-defined]
    assert await asyncio.to_thread(server.hung_up.wait, 10)


def test_what_the_gateway_says_is_in_the_error(server: ProgramServer) -> None:
    with pytest.raises(pando.ProgramError) as raised:
        breaks.run()
    error = raised.value
    assert (error.status, error.code, error.param) == (500, "internal", "program[0]")
    assert str(error) == error.message == "The model broke."


def test_a_busy_gateway_is_asked_again(server: ProgramServer) -> None:
    server.busy = 2
    assert color.run()["color"]
    assert len(server.bodies) == 3
    server.busy = 3
    with pytest.raises(pando.ProgramError, match=r"Later\.") as raised:
        color.run()
    assert raised.value.status == 429


def test_what_can_never_pass_is_asked_once(server: ProgramServer) -> None:
    server.busy, server.never = 1, True
    with pytest.raises(pando.ProgramError, match=r"Later\."):
        color.run()
    assert len(server.bodies) == 1


def test_a_gateway_that_is_not_there_is_named() -> None:
    client = pando.Client("http://127.0.0.1:9", model="tiny", max_retries=0)
    with pytest.raises(pando.ProgramError, match=r"gateway at http://127.0.0.1:9 can't be asked"):
        color.run(client=client)
    client.close()


def test_a_run_names_its_gateway_key_and_model(
    server: ProgramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pando.set_default_client(None)
    color.run(base_url=f"{server.url}/v1", api_key="k1", model="m1")
    monkeypatch.setenv("PANDO_BASE_URL", server.url)
    monkeypatch.setenv("PANDO_API_KEY", "k2")
    with pando.Client() as client:
        color.run(client=client)
    pando.set_default_client(client)
    server.models = ["tiny", "small"]
    color.run()
    assert [body["model"] for body in server.bodies] == ["m1", "tiny", "tiny"]
    assert [head["authorization"] for head in server.headers] == [
        *("Bearer k1", "Bearer k2", "Bearer k2")
    ]
    with pytest.raises(pando.ProgramError, match=r"Name a model .* serves tiny, small\."):
        color.run(base_url=server.url)
    client.close()


MISTAKES: dict[str, Callable[[pando.State], Any]] = {
    r"name is 'x': it was set before": lambda s: s.__iadd__(pando.gen("x") + pando.gen("x")),
    r"can't stand in a message of the role 'user'": lambda s: s.user("a" + pando.gen("x")),
    r"A message of 'user' within one of 'system'": lambda s: s.system(pando.user("a")),
    r"Text or a gen outside of messages": lambda s: s.__iadd__(pando.user("a") + "b"),
    r"A message beside text outside": lambda s: s.__iadd__("b" + pando.gen("x") + pando.user("a")),
    r"choices is \[\]: expected a list": lambda s: pando.select("x", []),
    r"choices is 'ab': expected a list": lambda s: pando.gen("x", choices="ab"),
    r"choices\[1\] is empty": lambda s: pando.select("x", ["a", ""]),
    r"choices\[0\] is 1: expected a text": lambda s: pando.select("x", [1]),  # type: ignore[list-item]
    r"choices and regex exclude": lambda s: pando.gen("x", choices=["a"], regex="a"),
    r"method is 'best': expected one of token_l": lambda s: pando.select("x", ["a"], "best"),
    r"max_tokens is -1: expected a whole number": lambda s: pando.gen("x", max_tokens=-1),
    r"n is 0: expected": lambda s: pando.gen("x", n=0),
    r"n is True: expected": lambda s: s.fork(True),
    r"temperature is 3: expected a number from 0 to 2": lambda s: pando.gen("x", temperature=3),
    r"top_p is -1": lambda s: pando.gen("x", top_p=-1),
    r"top_k is 1.5": lambda s: pando.gen("x", top_k=1.5),  # type: ignore[arg-type]
    r"seed is 'a'": lambda s: pando.gen("x", seed="a"),  # type: ignore[arg-type]
    r"regex and grammar exclude": lambda s: pando.gen("x", regex="a", grammar="b"),
    r"regex is '': expected": lambda s: pando.gen("x", regex=""),
    r"json_schema is 'a': expected a dict": lambda s: pando.gen("x", json_schema="a"),
    r"json_schema is no JSON": lambda s: pando.gen("x", json_schema={"a": object()}),
    r"stop is 5: expected": lambda s: pando.gen("x", stop=5),  # type: ignore[arg-type]
    r"stop holds an empty text": lambda s: pando.gen("x", stop=[""]),
    r"name is 'a#b': letters": lambda s: pando.gen("a#b"),
    r"name is 'x+': letters": lambda s: pando.gen("x" * 65).__class__ and pando.gen("x+"),
    r"name is 5: a step's name": lambda s: pando.gen(5),  # type: ignore[arg-type]
    r"5 can't be appended": lambda s: s.__iadd__(5),  # type: ignore[arg-type]
    r"5 can't stand beside a gen": lambda s: pando.gen("x") + 5,  # type: ignore[operator]
    r"longer than 64": lambda s: s.fork(1)[0].__iadd__(pando.gen("x" * 64)),
    r"A fork in the message of the role 'user'": lambda s: in_user(s, lambda: s.fork(2)),
    r"A branch can't be replaced": lambda s: s.fork(2).__setitem__(0, s),
}


def in_user(s: pando.State, act: Callable[[], Any]) -> None:
    with s.user():
        act()


@pytest.mark.parametrize("sentence", [one for one in MISTAKES if "x+" not in one])
def test_a_mistake_is_a_sentence_with_the_users_line(sentence: str) -> None:
    @pando.program
    def mistaken(s: pando.State) -> None:
        MISTAKES[sentence](s)

    with pytest.raises(pando.BadProgram, match=rf"{sentence}.*\(test_programs\.py, line \d+\)$"):
        mistaken.traced()


def test_a_name_that_was_never_set_is_told_with_those_that_were(server: ProgramServer) -> None:
    @pando.program
    def reads(s: pando.State) -> None:
        s += pando.gen("a") + pando.gen("b")
        s += s["c"]

    with pytest.raises(KeyError) as raised:
        reads.run()
    assert str(raised.value) == "No gen or select has set 'c'; set are: a, b."
    with pytest.raises(pando.UnknownName, match="'colour'; set are: color, sure"):
        color.run()["colour"]


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: pando.program(lambda s, seed: None), "parameter 'seed' is a setting"),
        (
            lambda: color("a"),  # type: ignore[arg-type]
            "color is a program: run it by color.run",
        ),
        (lambda: color.run(things="a"), "color: got an unexpected keyword argument 'things'"),
        (lambda: color.run(temperature=9), "temperature is 9"),
        (lambda: color.run(client="http://x"), "client is 'http://x'"),
        (lambda: color.run(client=pando.Client(), base_url="x"), "client excludes base_url"),
        (lambda: color.run_batch([], things=1), "'things' is no setting"),
        (lambda: color.run_batch([], concurrency=-1), "concurrency is -1"),
    ],
)
def test_a_wrong_run_is_a_sentence(act: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(pando.BadProgram, match=sentence):
        act()


def test_an_async_function_is_no_program() -> None:
    async def one(s: pando.State) -> None: ...

    with pytest.raises(pando.BadProgram, match="A program is a plain function"):
        pando.program(one)


def test_an_empty_program_asks_nobody(server: ProgramServer) -> None:
    @pando.program
    def empty(s: pando.State) -> int:
        return 5

    assert empty.run().returned == 5
    assert server.bodies == []


def test_a_picture_is_xml_with_every_node(server: ProgramServer, tmp_path: Path) -> None:
    @pando.program
    def tree(s: pando.State) -> None:
        s += "<&> \x00" + pando.gen("root")
        forks = s.fork(3)
        forks += "“quoted”" + pando.gen("leaf")
        s += " | ".join(forks["leaf"]) + pando.select("end", ["a", "b"])

    result = tree.run()
    path = tmp_path / "tree.svg"
    result.graph_svg(path)
    root = ElementTree.fromstring(path.read_text("utf-8"))
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for name in ("gen root", "gen leaf#0.0", "gen leaf#0.2", "select end"):
        assert name in texts
    assert any("of 5 cached" in text for text in texts)
    rects = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if "x" in rect.attrib]
    leaves = [rect for rect in rects if rect.attrib["fill"] == "#dcebf7"][1:]
    assert len({rect.attrib["y"] for rect in leaves}) == 1
    assert len({rect.attrib["x"] for rect in leaves}) == 3
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == len(rects) - 1 + 3


def test_a_program_runs_in_many_threads_at_once(server: ProgramServer) -> None:
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: color.run(str(i))})) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {i: result.text().split(" is")[0] for i, result in found.items()} == {
        i: f"The {i}" for i in range(8)
    }


def test_the_import_is_light() -> None:
    heavy = ("httpx", "rich", "typer", "pydantic", "torch", "numpy", "grpc", "starlette")
    code = f"import sys, pando; print([m for m in {heavy} if m in sys.modules])"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert told.strip() == "[]"


def test_something_else_at_the_address_is_told() -> None:
    server = ProgramServer()
    server.answered = lambda body: {"object": "list"}  # type: ignore[method-assign]
    with (
        serving(server),
        pando.Client(server.url, model="tiny") as client,
        pytest.raises(pando.ProgramError, match="doesn't answer as a gateway of Pando"),
    ):
        color.run(client=client)
