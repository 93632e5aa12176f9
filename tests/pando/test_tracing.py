"""What becomes one request, and what is a look at a value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import pando
from pando.programs.value import NeedsValue
from tests.pando.program_server import ProgramServer

Look = Callable[[Any], Any]


@pando.program
def advice(s: pando.State, topic: str) -> str:
    s += f"About {topic}: " + pando.gen("idea", max_tokens=8, stop="\n")
    forks = s.fork(2)
    for number, fork in enumerate(forks):
        fork += f" Tip {number}:"  # noqa: PLW2901
        fork += pando.gen("tip", max_tokens=4, temperature=0.5)  # noqa: PLW2901
    forks.join()
    s += " Tips: " + "; ".join(fork["tip"] for fork in forks)
    s += f" So {s['idea']}?" + pando.select("sure", [s["idea"], "no"])
    return f"-{s['sure']}"


def test_a_graph_has_values_where_they_are_read() -> None:
    assert advice.graph("tea") == [
        {"op": "text", "text": ["About tea: "]},
        {"op": "gen", "name": "idea", "max_tokens": 8, "stop": ["\n"]},
        {
            "op": "fork",
            "branches": [
                [
                    {"op": "text", "text": [f" Tip {number}:"]},
                    {"op": "gen", "name": name, "max_tokens": 4, "temperature": 0.5},
                ]
                for number, name in enumerate(("tip#0.0", "tip#0.1"))
            ],
        },
        {
            "op": "text",
            "text": [
                *(" Tips: ", {"var": "tip#0.0"}, "; ", {"var": "tip#0.1"}),
                *(" So ", {"var": "idea"}, "?"),
            ],
        },
        {
            "op": "select",
            "name": "sure",
            "method": "token_length_normalized",
            "choices": [[{"var": "idea"}], ["no"]],
        },
    ]


def test_what_the_function_returns_has_true_values(server: ProgramServer) -> None:
    result = advice.run("tea")
    assert result.returned == f"-{result['sure']}"
    assert (result.needs, result.usage.requests) == (None, 1)


LOOKS: dict[str, Look] = {
    "== of a value": lambda v: v == "yes",
    "!= of a value": lambda v: v != "yes",
    "the truth of a value": lambda v: not v,
    "int() of a value": int,
    "float() of a value": float,
    "len() of a value": len,
    "iteration of a value": list,
    "'in' of a value": lambda v: "e" in v,
    "an item or slice of a value": lambda v: v[:3],
    ".strip() of a value": lambda v: v.strip(),
    ".upper() of a value": lambda v: v.upper(),
    "a look-up of a value": {"yes": 1}.get,
    "repr() of a value": repr,
    "formatted with '>9'": lambda v: f"{v:>9}",
    "part of a value": lambda v: f"<{v}>"[:-2],
    ".startswith() of a value": json.loads,
    "% of a value": lambda v: v % 1,
    "< of a value": lambda v: v < "a",
    "TypeError": lambda v: v + 1,
    "in an argument that only takes text": lambda v: pando.gen("x", regex="a" + v),
}


@pytest.mark.parametrize("why", LOOKS)
def test_whatever_needs_a_value_is_told_with_its_line(why: str) -> None:
    @pando.program
    def looks(s: pando.State) -> None:
        s += pando.gen("v")
        s += "text" if LOOKS[why](s["v"]) is None else f"{LOOKS[why](s['v'])}"

    traced = looks.traced()
    assert not traced.is_graph
    assert why in str(traced.needs)
    if why != "TypeError":
        assert str(traced.needs).startswith("test_tracing.py, line ")
    with pytest.raises(pando.ProgramError, match="looks runs as a session: "):
        looks.graph()


def test_a_bare_except_does_not_hide_a_look() -> None:
    @pando.program
    def hides(s: pando.State) -> None:
        s += pando.gen("v")
        try:
            number = int(s["v"])
        except BaseException:
            number = 0
        s += str(number)

    assert "int() of a value" in str(hides.traced().needs)


@pytest.mark.parametrize(
    "hidden",
    [
        lambda v: re.search("^(yes|no|ü| )", v),
        lambda v: f"<{v}>" in {"<yes>", "<no>", "<ü>", "< two\nwords>"},
        "yes no ü  two\nwords".count,
        lambda v: len(f"{v}.".encode()) < 14 and not f"{v}.".startswith("\U0010fa10"),
    ],
)
def test_a_look_that_no_mark_notices_is_found_behind_the_run(
    server: ProgramServer, hidden: Look
) -> None:
    @pando.program
    def peeps(s: pando.State) -> None:
        s += pando.gen("v")
        s += " right" if hidden(s["v"]) else " wrong"
        s += pando.gen("w")

    assert peeps.traced().is_graph
    result = peeps.run()
    assert " right" in result.text()
    assert "another graph" in str(result.needs)
    assert result.usage.requests == 3
    assert not peeps.traced().is_graph  # it is not believed again
    assert peeps.run().usage.requests == 2


def test_a_stream_says_when_it_begins_again(server: ProgramServer) -> None:
    @pando.program
    def peeps(s: pando.State) -> None:
        s += pando.gen("v")
        s += " right" if re.search("^(yes|no|ü| )", s["v"]) else " wrong"
        s += pando.gen("w")

    stream = peeps.stream()
    events = list(stream)
    restart = [event.kind for event in events].index("restart")
    told = {event.name: event.text for event in events[restart:] if event.kind == "node"}
    assert told == stream.result.variables


def test_a_value_set_behind_its_reader_makes_a_session(server: ProgramServer) -> None:
    @pando.program
    def late(s: pando.State) -> None:
        s += "a" + pando.gen("x")
        [fork] = s.fork()
        s += "b" + pando.gen("y")
        fork += s["y"] + pando.gen("z")

    assert "reads 'y', which is set behind it" in str(late.traced().needs)
    result = late.run()
    assert set(result.variables) == {"x", "y", "z#0.0"}


def test_a_list_of_values_is_looked_at(server: ProgramServer) -> None:
    @pando.program
    def many(s: pando.State) -> str:
        s += pando.gen("v", n=3)
        return str(max(s["v"]))

    assert "the list of values 'v'" in str(many.traced().needs)
    result = many.run()
    assert len(result["v"]) == 3
    assert result.returned == max(result["v"])


def test_text_is_known_until_something_is_generated() -> None:
    @pando.program
    def tells(s: pando.State) -> str:
        s += pando.user("a")
        before = s.text()
        s += pando.assistant(pando.gen("x"))
        return before + s.text()

    assert "the text" in str(tells.traced().needs)


def test_one_program_goes_on_with_anothers_text() -> None:
    @pando.program
    def inner(s: pando.State, word: str) -> Any:
        s += word + pando.gen("x")
        return s["x"]

    @pando.program
    def outer(s: pando.State) -> None:
        s += "<" + inner(s, "a") + ">"

    assert [node["op"] for node in outer.graph()] == ["text", "gen", "text"]


def test_a_mark_of_another_run_is_refused() -> None:
    kept: list[str] = []

    @pando.program
    def keeps(s: pando.State) -> None:
        s += pando.gen("x")
        s += "".join(kept)
        kept.append(f"{s['x']}")

    keeps.traced()
    with pytest.raises(pando.BadProgram, match=r"a value of another run.*test_tracing.py, line"):
        keeps.traced()


def test_an_exception_of_the_function_is_its_own(server: ProgramServer) -> None:
    @pando.program
    def fails(s: pando.State) -> None:
        s += pando.gen("x")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails.run()
    assert server.bodies == []


def test_needing_a_value_is_no_exception() -> None:
    assert not issubclass(NeedsValue, Exception)
