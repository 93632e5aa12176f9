"""Arguments of steps and runs: what is wrong with one is a sentence with its name and its range."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pando.programs.place import mistake
from pando.programs.value import refuse_marks

METHODS = (
    "token_length_normalized",
    "greedy_token_selection",
    "unconditional_likelihood_normalized",
)
# As the gateway takes them, but for '#', which tells forks' names apart.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
MAX_NAME_LEN = 64


def name_of(name: object) -> str:
    """A step's name. Raises BadProgram."""
    if not isinstance(name, str):
        raise mistake(f"name is {name!r}: a step's name is a text.")
    refuse_marks(name)
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LEN:
        raise mistake(
            f"name is {name!r}: letters, digits, '_', '.' and '-' make a name, a letter or '_' is "
            f"its first, and {MAX_NAME_LEN} characters are the most."
        )
    return name


def whole(field: str, value: object, low: int, high: int = 2**31 - 1) -> int:
    """A whole number from low to high. Raises BadProgram."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise mistake(f"{field} is {value!r}: expected a whole number of at least {low}.")
    return value


def sampling_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of temperature, top_p, top_k, min_p and seed that aren't None. Raises BadProgram."""
    found = {field: value for field, value in settings.items() if value is not None}
    for field, value in found.items():
        if field == "top_k":
            whole(field, value, -1)
        elif field == "seed":
            whole(field, value, -(2**63), 2**63 - 1)
        else:
            _fraction(field, value, 2.0 if field == "temperature" else 1.0)
    return found


def _fraction(field: str, value: object, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        raise mistake(f"{field} is {value!r}: expected a number from 0 to {high:g}.")


def stops_of(stop: object) -> list[str]:
    """A stop string or several, as a list. Raises BadProgram."""
    if stop is None:
        return []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, Sequence) or not all(isinstance(one, str) for one in stops):
        raise mistake(f"stop is {stop!r}: expected a text or a list of texts.")
    refuse_marks(*stops)
    if "" in stops:
        raise mistake("stop holds an empty text, which would end every answer at once.")
    return list(stops)


def rule_of(regex: object, json_schema: object, grammar: object) -> dict[str, Any]:
    """What the answer must conform to: at most one of the three. Raises BadProgram."""
    wishes = {"regex": regex, "json_schema": json_schema, "grammar": grammar}
    found = {field: value for field, value in wishes.items() if value is not None}
    if len(found) > 1:
        raise mistake(f"{' and '.join(found)} exclude one another.")
    if json_schema is not None:
        return {"json_schema": _schema(json_schema)}
    for field, value in found.items():
        if isinstance(value, str):
            refuse_marks(value)
        if not isinstance(value, str) or not value:
            raise mistake(f"{field} is {value!r}: expected a text that isn't empty.")
    return found


def _schema(wish: object) -> dict[str, Any]:
    """A JSON schema, or that of a pydantic model's class."""
    make = getattr(wish, "model_json_schema", None)
    schema = make() if callable(make) else wish
    if not isinstance(schema, dict):
        raise mistake(f"json_schema is {wish!r}: expected a dict or a pydantic model's class.")
    try:
        refuse_marks(json.dumps(schema, ensure_ascii=False))
    except TypeError as error:
        raise mistake(f"json_schema is no JSON: {error}.") from error
    return schema


def choices_of(choices: object) -> tuple[str, ...]:
    """Texts to choose from; they may hold values. Raises BadProgram."""
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise mistake(f"choices is {choices!r}: expected a list with at least one text.")
    for position, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise mistake(f"choices[{position}] is {choice!r}: expected a text.")
        if str.__eq__(choice, ""):
            raise mistake(f"choices[{position}] is empty: it has no likelihood.")
    return tuple(choices)
