"""A constraint of a request as llguidance's source, within limits of size, or a refusal."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from llguidance import LLMatcher

from worker.errors import InvalidRequest
from worker.submission import Constraint, Language

# Real schemas are below 50 KB; compiling is up to quadratic in this.
MAX_SOURCE_BYTES = 128 * 1024
MAX_CHOICES = 4096
MAX_REASON_CHARS = 300

# What JSON may have between its tokens: nothing, a space, or a new line with its indentation. In
# unbounded white space weak models stay until max_tokens; none at all isn't how models write JSON.
WHITE_SPACE = r"( |\n {0,20})"

# The request's field, and what the source is called in a sentence about it.
_FIELDS = {
    Language.JSON_SCHEMA: ("response_format", "The JSON schema"),
    Language.REGEX: ("structured_outputs.regex", "The regex"),
    Language.GRAMMAR: ("structured_outputs.grammar", "The grammar"),
    Language.CHOICES: ("structured_outputs.choice", "The list of choices"),
}
_UNIMPLEMENTED = "Unimplemented keys: "
_ONE_OF = "oneOf constraints are not supported"
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_TEMPERATURE = re.compile(r"^[ \t]*[?!]?\w+[ \t]*\[[^\]\n]*\btemperature\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """What is compiled. param: the request's field. name: how a sentence about it begins.

    may_name_ids: special ids may stand in it by their number or name. ids: those that may come.
    """

    text: str
    param: str
    name: str
    may_name_ids: bool = False
    ids: frozenset[int] = frozenset()

    def refused(self, reason: str) -> InvalidRequest:
        """Returns the refusal, with the library's reason in one line."""
        return InvalidRequest(self.param, f"{self.name} can't be used: {_sentence(reason)}")


def written(constraint: Constraint) -> Source:
    """Returns a constraint's source. Raises InvalidRequest."""
    param, name = _FIELDS.get(constraint.language) or (constraint.param, _name(constraint.param))
    size = len(constraint.source.encode()) + sum(len(one.encode()) for one in constraint.choices)
    if size > MAX_SOURCE_BYTES:
        raise InvalidRequest(
            param, f"{name} has {size} bytes; it may have at most {MAX_SOURCE_BYTES}."
        )
    if constraint.language is Language.JSON_SCHEMA:
        return _schema(Source(constraint.source, param, name))
    if constraint.language is Language.REGEX:
        return Source(LLMatcher.grammar_from_regex(_dialect(constraint.source)), param, name)
    if constraint.language is Language.CHOICES:
        return _choices(constraint.choices, param, name)
    if constraint.language is Language.GRAMMARS:
        return Source(constraint.source, param, name, may_name_ids=True, ids=constraint.ids)
    if _TEMPERATURE.search(constraint.source):
        raise InvalidRequest(param, f"{name} sets a temperature; only the request does.")
    wrapped = json.dumps({"grammars": [{"lark_grammar": constraint.source}]})
    return Source(wrapped, param, name, may_name_ids=True)


def _name(param: str) -> str:
    """What is called by a field of the request."""
    names = (name for field, name in _FIELDS.values() if field == param)
    return next(names, f"What {param!r} asks for")


def _schema(source: Source) -> Source:
    """The options that the schema's own `x-guidance` may bring are overruled."""
    options = {
        "whitespace_pattern": WHITE_SPACE,
        "whitespace_flexible": True,
        "item_separator": ",",
        "key_separator": ":",
        "lenient": False,
        "coerce_one_of": False,
    }
    try:
        text = LLMatcher.grammar_from_json_schema(source.text, overrides=options)  # type: ignore[arg-type]
    except ValueError as error:
        raise source.refused(str(error)) from error
    return Source(text, source.param, source.name)


def _dialect(regex: str) -> str:
    r"""The regex with ASCII digits for \d: nobody who writes it means the others.

    Raises InvalidRequest for a backslash at its end, which the library would pass over.
    """
    if _ESCAPE.sub("", regex).endswith("\\"):
        param, name = _FIELDS[Language.REGEX]
        raise InvalidRequest(param, f"{name} can't be used: it ends in the middle of an escape.")
    return _ESCAPE.sub(lambda found: "[0-9]" if found[1] == "d" else found[0], regex)


def _choices(texts: tuple[str, ...], param: str, name: str) -> Source:
    if not texts:
        raise InvalidRequest(param, f"{name} is empty.")
    if len(texts) > MAX_CHOICES:
        raise InvalidRequest(
            param, f"{name} has {len(texts)} texts; it may have at most {MAX_CHOICES}."
        )
    if not all(texts):
        raise InvalidRequest(param, f"{name} holds an empty text.")
    options = " | ".join(json.dumps(text, ensure_ascii=False) for text in dict.fromkeys(texts))
    return Source(f"start: CHOICE\nCHOICE: {options}\n", param, name)


def _sentence(reason: str) -> str:
    """The library's reason in one line, without its pictures of the source."""
    if reason.startswith(_UNIMPLEMENTED):
        keys = ", ".join(json.loads(reason.removeprefix(_UNIMPLEMENTED).splitlines()[0]))
        return f"it has keywords that are not supported: {keys}."
    if reason.startswith(_ONE_OF):
        return "its oneOf has members that don't exclude one another by a constant."
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    line = told[-1] if told else (lines or ["it is not valid"])[0]
    line = re.sub(r"^at \d+\(\d+\): ", "", line).rstrip(".")
    return f"{line[:MAX_REASON_CHARS]}."
