"""Functions that look at values: several requests on one worker."""

from __future__ import annotations

import time
from typing import Any

import pytest

import pando
from tests.pando.program_server import ProgramServer


def session_of(body: dict[str, Any]) -> Any:
    return body.get("session")


def settled(server: ProgramServer) -> list[dict[str, Any]]:
    """All requests, also the one that nobody waits for."""
    for _ in range(100):
        if not server.sessions:
            break
        time.sleep(0.02)
    return server.bodies


@pando.program
def steps(s: pando.State, number: int = 3) -> None:
    s += "Begin."
    for i in range(number):
        s += f" {i}:" + pando.gen(f"v{i}") + ";"
        s += " good" if s[f"v{i}"] == "yes" else " bad"


def test_each_look_sends_what_is_new_and_the_session_is_ended(server: ProgramServer) -> None:
    result = steps.run()
    first, second, third, end = settled(server)
    begun = [node["text"] for node in first["program"] if node["op"] == "text"]
    assert begun == [["Begin. 0:"]]
    assert session_of(first) == {"ttl_s": 60}
    name = session_of(second)["id"]
    assert [session_of(third), session_of(end)] == [
        {"id": name, "ttl_s": 60},
        {"id": name, "ttl_s": 0},
    ]
    assert second["program"][0]["text"][0].startswith("; ")
    assert end["program"] == []
    assert server.sessions == {}
    assert result.usage == pando.Usage(30, 12, 9, 3)
    assert [node.name for node in result.nodes] == ["v0", "v1", "v2"]


def test_the_last_request_ends_the_session(server: ProgramServer) -> None:
    @pando.program
    def two(s: pando.State) -> None:
        s += "a" + pando.gen("x")
        s += pando.gen("y", max_tokens=1 + len(s["x"]))

    two.run()
    assert [session_of(body)["ttl_s"] for body in server.bodies] == [60, 0]
    assert server.sessions == {}


def test_a_lost_session_is_told_from_the_beginning(server: ProgramServer) -> None:
    whole = steps.run(number=4)
    before = len(settled(server))
    server.loses_sessions = True
    again = steps.run(number=4)
    assert again.variables == whole.variables
    assert again.text() == whole.text()
    sent = server.bodies[before:]
    texts = [body["program"][0]["text"][0] for body in sent if body["program"]]
    begun = [text for text in texts if text.startswith("Begin.")]
    assert len(begun) == 4
    assert again["v0"] in begun[-1]
    assert again["v2"] in begun[-1]


def test_a_program_that_fails_lets_its_session_go(server: ProgramServer) -> None:
    @pando.program
    def fails(s: pando.State) -> None:
        s += "Begin." + pando.gen("x")
        s += pando.gen("breaks", max_tokens=1 + len(s["x"]))

    with pytest.raises(pando.ProgramError, match="The model broke"):
        fails.run()
    *_, end = settled(server)
    assert server.sessions == {}
    assert (session_of(end)["ttl_s"], end["program"]) == (0, [])


def test_forks_that_go_on_are_sent_again_with_their_values(server: ProgramServer) -> None:
    @pando.program
    def tree(s: pando.State) -> str:
        s += pando.system("Think.") + pando.user("Two ideas.")
        forks = s.fork(2)
        for fork in forks:
            fork += pando.assistant(pando.gen("idea"))  # noqa: PLW2901
        ideas = forks["idea"]
        best = forks[0 if len(ideas[0]) > 2 else 1]
        best += pando.user("Go on.") + pando.assistant(pando.gen("more"))
        return str(best["more"])

    result = tree.run()
    first, second = server.bodies[:2]
    assert [node["op"] for node in first["program"]] == ["message", "message", "fork"]
    assert session_of(second)["id"]
    [fork] = second["program"]
    [branch] = fork["branches"]
    assert branch[0]["body"] == [{"op": "text", "text": [result[f"idea#0.{branch_of(branch)}"]]}]
    assert result.returned == branch_value(result)


def branch_of(branch: list[dict[str, Any]]) -> str:
    return str(branch[-1]["body"][-1]["name"])[-1]


def branch_value(result: pando.Result) -> Any:
    return next(value for name, value in result.variables.items() if name.startswith("more"))


def test_an_open_message_is_looked_into_without_being_kept(server: ProgramServer) -> None:
    @pando.program
    def opened(s: pando.State) -> None:
        s += pando.user("hi")
        with s.assistant():
            s += "I say " + pando.gen("a")
            if s["a"] != "never":
                s += " and " + pando.gen("b")

    result = opened.run()
    first, second = server.bodies[:2]
    assert [node["op"] for node in first["program"]] == ["message", "fork"]
    assert [node["op"] for node in second["program"]] == ["message"]
    assert second["program"][0]["body"][0]["text"] == [f"I say {result['a']} and "]
    assert result.messages()[1]["content"] == f"I say {result['a']} and {result['b']}"


def test_without_anything_to_keep_there_is_no_session(server: ProgramServer) -> None:
    @pando.program
    def asks(s: pando.State) -> None:
        s += "A long document. "
        answers = []
        for i in range(2):
            [fork] = s.fork()
            fork += f"Question {i}:" + pando.gen("answer")
            answers.append(len(fork["answer"]))

    asks.run()
    assert [session_of(body) for body in server.bodies] == [None, None]
    assert all(body["program"][0]["text"] == ["A long document. "] for body in server.bodies)


def test_each_request_of_a_seeded_session_has_its_own_seed(server: ProgramServer) -> None:
    steps.run(seed=7)
    steps.run(seed=7)
    seeds = [body["sampling"]["seed"] for body in settled(server) if body["program"]]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert seeds[:3] == seeds[3:]


def test_not_traceable_runs_once(server: ProgramServer) -> None:
    runs = []

    @pando.program(traceable=False)
    def counted(s: pando.State) -> None:
        runs.append(1)
        s += pando.gen("x")
        runs.append(len(s["x"]))

    result = counted.run()
    assert runs == [1, len(result["x"])]
    assert result.needs == "it was not traced"


def test_a_node_begins_behind_the_requests_before_it(server: ProgramServer) -> None:
    result = steps.run()
    starts = [node.started_s for node in result.nodes]
    assert starts == sorted(starts)
    assert starts[0] >= 0.25
    assert result.nodes[0].seconds == 0.25
