from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.loaded import tokenizer_of
from tests.worker.text.vocabularies import sentencepiece, vocabulary, write_folder
from worker.choice import Choice
from worker.errors import InvalidRequest
from worker.parts.formats import TOLD
from worker.parts.splitter import Splitter, Thinking
from worker.request import FinishReason, Stopping
from worker.sequence import pack_tokens
from worker.submission import Output, Resumed, StopRules
from worker.text.detokenizer import Detokenizer
from worker.text.tokenizer import Tokenizer

THE = vocabulary()["▁the"]


@pytest.fixture(scope="module")
def vocabularies(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """Byte level; and byte fallback, which drops the space in front of a text."""
    folder = write_folder(tmp_path_factory.mktemp("pieces"), sentencepiece(metaspace=True))
    return [tokenizer_of(smollm2_folder), Tokenizer.load(folder)]


def opened(tokenizer: Tokenizer, rules: StopRules, behind_text: bool) -> Choice:
    make = Detokenizer.after_text if behind_text else Detokenizer
    return Choice.open(0, rules, make(tokenizer))


def played(choice: Choice, ids: list[int], stopping: Stopping) -> list[Output]:
    """Pushes tokens, as the engine would sample them, up to the choice's end."""
    outputs = []
    for token in ids:
        output = choice.push(token, stopping.ends(token, choice.num_tokens + 1))
        if output is None:
            break
        outputs.append(output)
    return outputs


def text_of(outputs: list[Output]) -> str:
    return "".join(output.text for output in outputs)


@settings(max_examples=300)
@given(
    which=st.sampled_from([0, 1]),
    # Single bytes often: they make characters of several tokens, whole and broken.
    ids=st.lists(st.integers(0, 320) | st.sampled_from([THE]), min_size=1, max_size=12),
    stops=st.lists(st.text(alphabet="ab\ufffdé \nthe", min_size=1, max_size=3), max_size=3),
    ending=st.frozensets(st.integers(0, 320), max_size=40),
    min_tokens=st.integers(0, 4),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_a_choice_cut_anywhere_goes_on_with_the_very_text(
    vocabularies: list[Tokenizer],
    *,
    which: int,
    ids: list[int],
    stops: list[str],
    ending: frozenset[int],
    min_tokens: int,
    flags: tuple[bool, bool],
) -> None:
    tokenizer, (include_stop, behind_text) = vocabularies[which], flags
    rules = StopRules(stop=tuple(stops), min_tokens=min_tokens, include_stop=include_stop)
    stopping = Stopping(len(ids), ending, min_tokens)
    whole = played(opened(tokenizer, rules, behind_text), ids, stopping)
    text = text_of(whole)
    for cut in range(len(whole)):
        given_out = text_of(whole[:cut])
        choice = opened(tokenizer, rules, behind_text)
        assert choice.replay(Resumed(0, pack_tokens(ids[:cut]), len(given_out)), stopping) is None
        rest = played(choice, ids[cut:], stopping)
        assert given_out + text_of(rest) == text
        assert [one.tokens for one in rest] == [one.tokens for one in whole[cut:]]
        assert (rest[-1].finish, rest[-1].stop) == (whole[-1].finish, whole[-1].stop)
        assert choice.num_tokens == len(whole)
    ended = opened(tokenizer, rules, behind_text)
    output = ended.replay(Resumed(0, pack_tokens(ids[: len(whole)]), len(text)), stopping)
    last = whole[-1]
    assert output == Output(0, "", [], [], last.finish, last.stop, text_chars=len(text))
    assert ended.finished
    assert ended.num_tokens == len(whole)


def test_a_space_in_front_is_dropped_once_and_not_again_at_the_cut(
    vocabularies: list[Tokenizer],
) -> None:
    choice = opened(vocabularies[1], StopRules(), behind_text=False)
    choice.replay(Resumed(0, pack_tokens([THE]), 3), Stopping(9))
    [output] = played(choice, [THE], Stopping(9))
    assert output.text == " the"


def test_half_a_character_and_half_a_stop_string_are_held_across_the_cut(
    vocabularies: list[Tokenizer],
) -> None:
    tokenizer = vocabularies[0]
    tree = tokenizer.encode_literal("🌲")
    choice = opened(tokenizer, StopRules(stop=("b🌲c",)), behind_text=False)
    before = [*tokenizer.encode_literal("ab"), *tree[:1]]
    assert choice.replay(Resumed(0, pack_tokens(before), 1), Stopping(99)) is None
    outputs = played(choice, [*tree[1:], *tokenizer.encode_literal("c")], Stopping(99))
    assert text_of(outputs) == ""
    assert (outputs[-1].finish, outputs[-1].stop) == (FinishReason.STOP, "b🌲c")


def test_text_that_was_not_given_out_leaves_with_the_first_new_token(
    vocabularies: list[Tokenizer],
) -> None:
    choice = opened(vocabularies[0], StopRules(), behind_text=False)
    ids = vocabularies[0].encode_literal("one two three four")
    choice.replay(Resumed(0, pack_tokens(ids[:2]), 3), Stopping(99))
    texts = [one.text for one in played(choice, ids[2:], Stopping(99))]
    assert texts == [" two three", " four"]


@pytest.mark.parametrize("chars", [4, 2**63])
def test_more_text_than_the_tokens_make_is_refused(
    vocabularies: list[Tokenizer], chars: int
) -> None:
    choice = opened(vocabularies[0], StopRules(), behind_text=False)
    ids = vocabularies[0].encode_literal("one")
    with pytest.raises(InvalidRequest, match=f"^resume has {chars} characters for choice 0; its"):
        choice.replay(Resumed(0, pack_tokens(ids), chars), Stopping(99))


def test_tokens_behind_the_end_are_counted_and_not_shown(vocabularies: list[Tokenizer]) -> None:
    choice = opened(vocabularies[0], StopRules(), behind_text=False)
    ids = vocabularies[0].encode_literal("one two three")
    stopping = Stopping(99, frozenset({ids[1]}))
    output = choice.replay(Resumed(0, pack_tokens(ids), 0), stopping)
    assert output == Output(0, "one", [], [], FinishReason.STOP, text_chars=3)
    assert choice.num_tokens == 3


def told_apart(outputs: list[Output]) -> tuple[str, str, list[tuple[int, str, str]]]:
    calls: dict[int, tuple[str, str]] = {}
    for output in outputs:
        for delta in output.tool_calls:
            name, arguments = calls.get(delta.index, ("", ""))
            calls[delta.index] = (name + delta.name, arguments + delta.arguments)
    return (
        "".join(output.text for output in outputs),
        "".join(output.reasoning for output in outputs),
        [(index, *call) for index, call in sorted(calls.items())],
    )


def test_a_choice_that_is_told_apart_goes_on_wherever_it_was_cut(
    vocabularies: list[Tokenizer],
) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {"a": "} 日本 \\" <"}}\n</tool_call>'
    said = f"<think>\nLet me see. 日本 \n</think>\n\nSo: <tool\n{call}\n{call}"
    for tokenizer in vocabularies:
        ids = tokenizer.encode_literal(said)
        stopping = Stopping(len(ids))

        def fresh(tokenizer: Tokenizer = tokenizer) -> Choice:
            splitter = Splitter(Thinking.OPEN, TOLD)
            return Choice.open(0, StopRules(), Detokenizer(tokenizer), splitter)

        whole = played(fresh(), ids, stopping)
        text, reasoning, calls = told_apart(whole)
        assert (text, reasoning) == ("So: <tool", "Let me see. 日本")
        assert calls == [(n, "look", '{"a": "} 日本 \\" <"}') for n in (0, 1)]
        for cut in range(1, len(whole)):
            choice, chars = fresh(), whole[cut - 1].text_chars
            assert choice.replay(Resumed(0, pack_tokens(ids[:cut]), chars), stopping) is None
            rest = played(choice, ids[cut:], stopping)
            assert told_apart([*whole[:cut], *rest]) == (text, reasoning, calls)
            assert rest[-1].text_chars == whole[-1].text_chars
