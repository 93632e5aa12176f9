"""Where the gateway's boundaries lie in a program, so that it learns what is cached of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proto.program import Gen, Message, Node, Text, Variable
from tests.worker.loaded import tokenizer_of
from worker.programs.beginning import beginning_of
from worker.programs.tape import Tape, Writer, packed
from worker.submission import NamedBoundary, Unit
from worker.text.chat import ChatTemplate

FRONT = "Once upon a time there was a tree, and nobody knew its name. " * 4


@pytest.fixture(scope="module")
def writer(smollm2_folder: Path) -> Writer:
    tokenizer = tokenizer_of(smollm2_folder)
    return Writer(tokenizer, ChatTemplate.load(smollm2_folder, tokenizer), 1000)


def chars(*counts: int) -> list[NamedBoundary]:
    return [NamedBoundary(b"%d" % one, one, Unit.CHARS) for one in counts]


def test_boundaries_of_literal_text_lie_in_the_first_prompt(writer: Writer) -> None:
    nodes: list[Node] = [Text([FRONT[:50]]), Text([FRONT[50:]]), Gen(name="a", max_tokens=4)]
    found = beginning_of(nodes, chars(len(FRONT), 100, 5000), writer)
    assert found is not None
    tape = Tape(writer)
    tape.append(FRONT)
    prompt = tape.start(heals=False).ids
    first, last = found.within(packed(prompt))
    assert (first.digest, last.digest) == (b"100", b"%d" % len(FRONT))
    assert 0 < first.num_tokens < last.num_tokens <= len(prompt)
    assert found.within(packed(prompt[: first.num_tokens])) == (first,)
    assert found.within(packed(prompt[::-1])) == ()


def test_messages_count_as_far_as_they_are_literal(writer: Writer) -> None:
    nodes: list[Node] = [
        Message("system", [Text([FRONT])]),
        Message("user", [Text(["Hi"])]),
        Message("assistant", [Gen(name="a", max_tokens=4)]),
        Message("user", [Text([Variable("a")])]),
    ]
    wanted = [NamedBoundary(b"%d" % one, one) for one in (1, 2, 3)]
    found = beginning_of(nodes, wanted, writer)
    assert found is not None
    assert [one.digest for one in found.positions] == [b"1", b"2"]
    prompt = writer.template.encode(
        [{"role": "system", "content": FRONT}, {"role": "user", "content": "Hi"}]
    )
    assert found.within(packed(prompt.ids)) == found.positions
    assert found.positions[0].num_tokens > len(writer.tokenizer.encode_literal(FRONT))


def test_what_is_generated_first_has_no_boundary(writer: Writer) -> None:
    nodes: list[Node] = [Text([Variable("a"), FRONT])]
    assert beginning_of(nodes, chars(100), writer) is None
    assert beginning_of([Text([FRONT])], [], writer) is None
