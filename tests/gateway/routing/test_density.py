"""Tokens per byte follow the finished requests."""

from __future__ import annotations

import pytest

from gateway.routing.density import DEFAULT_DENSITY, Density


def test_it_is_learned_within_a_few_requests() -> None:
    density = Density()
    assert density.tokens_per_byte == DEFAULT_DENSITY
    for _ in range(20):
        density.learn(4000, 2000)
    assert density.tokens_per_byte == pytest.approx(0.5, rel=0.02)


def test_it_follows_a_change_and_forgets_what_was() -> None:
    density = Density()
    for _ in range(500):
        density.learn(4000, 1000)
    for _ in range(300):
        density.learn(4000, 4000)
    assert density.tokens_per_byte == pytest.approx(1.0, rel=0.02)


def test_an_empty_prompt_or_an_unknown_length_teaches_nothing() -> None:
    density = Density()
    density.learn(0, 100)
    density.learn(100, 0)
    assert density.tokens_per_byte == DEFAULT_DENSITY
