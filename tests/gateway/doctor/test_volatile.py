"""Values are found where they stand, and are what they are."""

from __future__ import annotations

import random

import pytest

from gateway.doctor.shape import SHORT, PartText, Shaper
from gateway.doctor.spacing import squeezed, unmarked
from gateway.doctor.volatile import _COUNTED, MAX_VALUES, masked, values
from loadtest.faults import values as forms


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("It is Monday, November 30, 2026.", "Monday, November 30, 2026", "timestamp"),
        ("at 2026-11-30T12:03:59.5Z now", "2026-11-30T12:03:59.5Z", "timestamp"),
        ("Date: Mon, 30 Nov 2026 12:03:59 GMT", "Mon, 30 Nov 2026 12:03:59 GMT", "timestamp"),
        ("now=1764504239", "1764504239", "timestamp"),
        ("(12:03:59)", "12:03:59", "timestamp"),
        ("See you on Tuesday then", "Tuesday", "timestamp"),
        ("id 550e8400-e29b-41d4-a716-446655440000.", None, "uuid"),
        ("trace 9f8a2c41d0", "9f8a2c41d0", "id"),
        ("call_oIHazX6yQrB8hUwl4cRilFKj", "call_oIHazX6yQrB8hUwl4cRilFKj", "id"),
        ("key HrpVjmSaRAcCpcLkbuSFg", "HrpVjmSaRAcCpcLkbuSFg", "id"),
        ("turn 17 of it", "17", "counter"),
        ("1,204.50 left", "1,204.50", "counter"),
    ],
)
def test_a_value_is_found_with_its_place_and_class(text: str, value: str | None, kind: str) -> None:
    (span,) = values(text)
    assert span.kind.value == kind
    if value is not None:
        assert text[span.start : span.end] == value


@pytest.mark.parametrize("text", ["getUserAccountById", "no numbers here", "-" * 40, "", "today"])
def test_what_does_not_change_by_itself_is_no_value(text: str) -> None:
    assert values(text) == []


@pytest.mark.parametrize("family", ["TIMES", "UUIDS", "IDS", "COUNTERS"])
def test_two_values_of_one_form_leave_the_same_text(family: str) -> None:
    rng = random.Random(7)
    for form in getattr(forms, family):
        for _ in range(20):
            texts = [f"Then: {form(rng)}, and so on" for _ in range(2)]
            blanked = {masked(text, values(text)) for text in texts}
            kept = {squeezed(one).replace("\x01\x01", "\x01") for one in blanked}
            assert len(kept) == 1 or family == "TIMES", texts


def test_a_text_of_numbers_ends_somewhere() -> None:
    assert len(values("7 " * 5000)) == MAX_VALUES


def test_space_marks_and_invisible_characters_do_not_count() -> None:
    plain = "You are an assistant.\nBe brief."
    for other in (
        "<s>You are an assistant.\r\n\r\nBe  brief.</s>",
        "\ufeffYou are an\u00a0assis\u200btant. Be brief.\n",
        "<|begin_of_text|>You are an assistant.\tBe brief.",
    ):
        assert squeezed(other) == squeezed(plain)
    assert squeezed("You are an assistent. Be brief.") != squeezed(plain)


def test_a_templates_marks_go_with_the_roles_that_they_name() -> None:
    first = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>"
    second = "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST]"
    assert squeezed(unmarked(first)) == squeezed(unmarked(second)) == "Bebrief.Hi"


HOSTILE = {
    "dashes": "-" * 32_000 + "1abcdef",
    "lines": "\n" * 32_000 + ":",
    "digits": "1" * 32_000,
    "months": "Jan " * 8000,
    "letters and digits": "a1" * 16_000,
    "marks": "<|" * 16_000,
    "times": "12:" * 10_000,
    "a date and space": "Jan 1" + " " * 32_000,
    "hex": "0aB" * 10_000,
    "accents": "e\u0301\u0323" * 9000,
}


def test_no_pattern_of_a_word_goes_back_and_forth() -> None:
    """Whatever the bound on words: here it would take minutes."""
    assert _COUNTED.fullmatch("=" * 300_000 + "1zzzz") is None


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_takes_no_longer_than_another(text: str) -> None:
    """A pattern that goes back and forth would take minutes."""
    shape = Shaper(b"k").shape(PartText("m", "user", text))
    assert len(shape.form) == SHORT
