"""Hits by size are those of plain caches that are run one by one."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.analysis.clairvoyant import best_hits, story
from loadtest.analysis.recency import Recency
from loadtest.analysis.tree import Grain, Passage, Tree
from tests.loadtest.analysis import oracle
from tests.loadtest.analysis.oracle import Prompt

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), max_size=14)
PROMPTS = PROMPTS.filter(bool)
FEW = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3).map(tuple), max_size=5)
FEW = FEW.filter(bool)


def grown(prompts: list[Prompt]) -> tuple[Tree, list[Passage]]:
    tree = Tree(Grain(4))
    return tree, [tree.add(array("i", prompt).tobytes()) for prompt in prompts]


def passed(prompts: list[Prompt], page: int) -> tuple[Recency, list[int]]:
    _, passages = grown(prompts)
    recency = Recency(page, len(prompts))
    hits = [
        recency.add(passage.stretches, len(prompt), len(prompt) - 1)
        for passage, prompt in zip(passages, prompts, strict=True)
    ]
    return recency, hits


@given(PROMPTS, st.sampled_from([1, 2, 3]))
def test_what_is_shared_is_what_comparing_with_every_earlier_prompt_finds(
    prompts: list[Prompt], page: int
) -> None:
    _, hits = passed(prompts, page)
    assert hits == oracle.shared(prompts, page)


@given(PROMPTS, st.sampled_from([1, 2, 3]))
def test_every_size_has_the_hits_of_a_cache_of_that_size(prompts: list[Prompt], page: int) -> None:
    curve = passed(prompts, page)[0].curve()
    for size in range(0, 40, page):
        assert curve.at(size) == sum(oracle.lru_hits(prompts, size, page)), size


@given(PROMPTS)
def test_more_room_never_loses_a_hit(prompts: list[Prompt]) -> None:
    recency, hits = passed(prompts, 1)
    curve = recency.curve()
    by_size = [curve.at(size) for size in range(200)]
    assert all(less <= more for less, more in pairwise(by_size))
    assert by_size[-1] == curve.most == sum(hits)


@given(PROMPTS, st.floats(0.01, 1))
def test_the_least_size_for_a_share_is_the_least(prompts: list[Prompt], share: float) -> None:
    curve = passed(prompts, 1)[0].curve()
    size = curve.size_for(share)
    assert curve.at(size) >= share * curve.most
    assert size == 0 or curve.most == 0 or curve.at(size - 1) < share * curve.most


@settings(max_examples=40)
@given(FEW, st.integers(0, 4))
def test_the_bound_is_what_the_best_of_all_choices_has(prompts: list[Prompt], size: int) -> None:
    tree, passages = grown(prompts)
    told = story(tree, [passage.node for passage in passages])
    assert best_hits(told, size) == oracle.best_hits(prompts, size)


@given(PROMPTS, st.integers(0, 30))
def test_no_rule_beats_the_bound(prompts: list[Prompt], size: int) -> None:
    tree, passages = grown(prompts)
    told = story(tree, [passage.node for passage in passages])
    bound = best_hits(told, size)
    assert sum(oracle.lru_hits(prompts, size)) <= bound


@given(PROMPTS)
def test_a_prompts_path_is_the_prompt(prompts: list[Prompt]) -> None:
    tree, passages = grown(prompts)
    for prompt, passage in zip(prompts, passages, strict=True):
        path = passage.node.path()
        assert b"".join(node.run for node in path) == array("i", prompt).tobytes()
        assert [node.begin for node in path] == [0, *(node.end for node in path[:-1])]
    distinct = {prompt[:end] for prompt in prompts for end in range(1, len(prompt) + 1)}
    assert tree.size == 4 * len(distinct) == 4 * sum(map(tree.units, tree.nodes()))


def test_a_cut_falls_between_symbols() -> None:
    """257 and 513 share their first byte, and are two tokens."""
    tree, passages = grown([(7, 257), (7, 513)])
    assert passages[1].matched == 1
    assert tree.size == 4 * 3
    for last, passage in zip((257, 513), passages, strict=True):
        runs = [node.run for node in passage.node.path()]
        assert runs == [array("i", [7]).tobytes(), array("i", [last]).tobytes()]


@pytest.mark.parametrize(("size", "hits", "bound"), [(1, 0, 1), (3, 0, 3), (4, 1, 3), (5, 2, 3)])
def test_the_first_prompt_comes_back_behind_another(size: int, hits: int, bound: int) -> None:
    """LRU gives its end up first; whoever knows the future keeps it alone."""
    prompts: list[Prompt] = [(1, 2, 3), (4, 5, 6), (1, 2, 3)]
    tree, passages = grown(prompts)
    assert passed(prompts, 1)[0].curve().at(size) == hits
    assert best_hits(story(tree, [one.node for one in passages]), size) == bound
