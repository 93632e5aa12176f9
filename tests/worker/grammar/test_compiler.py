"""Sources are compiled once, off everybody's way, and forgotten in the order of their last use."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.worker.grammar.languages import HEAVY, SCHEMAS, json_schema, many_properties
from tests.worker.grammar.weak import choices, lark, regex
from tests.worker.loaded import tokenizer_of
from worker.errors import InvalidRequest
from worker.grammar.compiler import Compiler
from worker.grammar.matcher import Matcher
from worker.grammar.vocabulary import Canon
from worker.submission import Constraint, Language
from worker.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> Compiler:
    return Compiler(tokenizer, max_grammars=2)


def test_a_source_is_compiled_once_for_all_who_want_it_at_once(tokenizer: Tokenizer) -> None:
    compiler = Compiler(tokenizer)
    wanted = json_schema(many_properties(300))
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(compiler.compile, [wanted] * 8))
    assert all(one is found[0] for one in found)
    assert (compiler.tallies.compiled, compiler.tallies.hits) == (1, 7)


def test_the_last_ones_used_are_kept(compiler: Compiler) -> None:
    first = compiler.compile(regex("a"))
    compiler.compile(regex("b"))
    assert compiler.compile(regex("a")) is first
    compiler.compile(regex("c"))  # b leaves
    assert compiler.compile(regex("a")) is first
    before = compiler.tallies.compiled
    compiler.compile(regex("b"))
    assert compiler.tallies.compiled == before + 1


def test_a_refusal_is_kept_as_well_and_told_again(compiler: Compiler) -> None:
    before = compiler.tallies.refused
    told = []
    for _ in range(2):
        with pytest.raises(InvalidRequest) as caught:
            compiler.compile(regex("["))
        told.append((caught.value.param, caught.value.message))
    assert told[0] == told[1]
    assert compiler.tallies.refused == before + 1


def test_sources_of_two_languages_or_two_lists_are_never_taken_for_one_another(
    compiler: Compiler,
) -> None:
    alike = [
        regex("ab"),
        Constraint(Language.CHOICES, choices=("ab",)),
        Constraint(Language.CHOICES, choices=("a", "b")),
        Constraint(Language.CHOICES, choices=("b", "a")),
        lark('start: "ab"'),
    ]
    found = [compiler.compile(one) for one in alike]
    assert len(set(map(id, found))) == len(alike)


def test_a_defect_is_not_kept(tokenizer: Tokenizer) -> None:
    compiler = Compiler(tokenizer)
    good, compiler._vocabulary = compiler._vocabulary, None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        compiler.compile(regex("a"))
    compiler._vocabulary = good
    assert compiler.compile(regex("a"))


def test_other_threads_run_while_a_heavy_source_is_compiled(tokenizer: Tokenizer) -> None:
    """A loop in Python that kept the interpreter's lock would let nobody count."""
    compiler = Compiler(tokenizer)
    compiler.compile(regex("a"))
    done = threading.Event()

    def compile_it() -> None:
        compiler.compile(HEAVY["properties"])
        done.set()

    thread = threading.Thread(target=compile_it, daemon=True)
    counted = 0
    thread.start()
    while not done.wait(0.001):
        counted += 1
    thread.join()
    assert counted > 5


def test_a_matcher_leaves_its_grammar_as_it_was(compiler: Compiler) -> None:
    grammar = compiler.compile(json_schema(SCHEMAS["flat"]))
    first = Matcher(grammar, appends=True)
    outlook = first.advance([])
    first.advance([])
    assert Matcher(grammar, appends=True).advance([]) == outlook


def test_a_long_forced_text_comes_in_parts_whose_tokens_do_not_depend_on_how(
    compiler: Compiler, tokenizer: Tokenizer
) -> None:
    text = "It goes on and on, 日本語 and more, number " + " and so on" * 700
    grammar = compiler.compile(choices(text))
    appended: list[int] = []
    matcher = Matcher(grammar, appends=True)
    outlook = matcher.advance([])
    num_parts = 1
    appended += outlook.forced
    while outlook.is_partial:
        outlook = matcher.advance([])
        appended += outlook.forced
        num_parts += 1
    assert outlook.ended
    assert num_parts > 1
    assert appended == tokenizer.encode_literal(text)
    sampled = Matcher(grammar, appends=False)
    outlook = sampled.advance([])
    for token in appended:
        assert int.from_bytes(outlook.mask, "little") == 1 << token
        outlook = sampled.advance([token])
    assert outlook.ended


def test_canonical_ids_spell_their_text_whatever_it_is(tokenizer: Tokenizer) -> None:
    canon = Canon(tokenizer)
    for text in ("plain", " space", "<|im_end|>", "日本 👩‍👩‍👧", "\n\n\t", '{"a": 1}', ""):
        ids = canon(text)
        assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text
        assert not tokenizer.special_ids & set(ids)
    assert canon("plain text") == tokenizer.encode_literal("plain text")
    assert canon("\x01" * 3) in ([], canon("\x01") * 3)  # this vocabulary lacks the byte
