"""Schemas, regexes and choices, as many kinds as answers have; and sources that mean harm."""

from __future__ import annotations

import json
from typing import Any

from worker.submission import Constraint, Language


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


WORD = {"type": "string", "maxLength": 8}
BYTE = {"type": "integer", "minimum": 0, "maximum": 255}
POINT = _object(x={"type": "number", "minimum": -1, "maximum": 1}, y={"type": "integer"})

SCHEMAS: dict[str, dict[str, Any]] = {
    "flat": _object(name=WORD, age=BYTE, member={"type": "boolean"}),
    "nested": _object(user=_object(name=WORD, at=POINT), tags={"type": "null"}),
    "list": {"type": "array", "items": BYTE, "minItems": 1, "maxItems": 4},
    "objects": {"type": "array", "items": POINT, "maxItems": 2},
    "enum": _object(kind={"enum": ["alpha", "beta", "gamma delta", 3, None, True]}),
    "const": _object(version={"const": "2024-01"}, ok={"const": True}),
    "date": _object(day={"type": "string", "format": "date"}),
    "pattern": _object(code={"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]{2}$"}),
    "any of": {"anyOf": [{"type": "null"}, BYTE, _object(a=BYTE)]},
    "one of": {"oneOf": [_object(kind={"const": "a"}), _object(kind={"const": "b"}, n=BYTE)]},
    "optional": {
        "type": "object",
        "properties": {"a": BYTE, "b": WORD, "c": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    "reference": {
        "$defs": {"p": POINT},
        "type": "array",
        "items": {"$ref": "#/$defs/p"},
        "maxItems": 2,
    },
    "tree": {
        "$defs": {
            "t": {
                "type": "object",
                "properties": {"v": BYTE, "next": {"$ref": "#/$defs/t"}},
                "required": ["v"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/t",
    },
    "long keys": _object(**{"the_very_long_name_of_a_field": BYTE, "説明と日本語のキー": BYTE}),
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
    "all of": {
        "allOf": [{"type": "object", "properties": {"a": BYTE}}, _object(a={"type": "integer"})]
    },
    "escapes": _object(path={"const": 'a"b\\c\n\t/é'}),
    "tuple": {"type": "array", "prefixItems": [BYTE, WORD], "items": False, "minItems": 2},
}
REGEXES = [
    r"[a-c]{2,3}",
    r"\d{4}-\d{2}-\d{2}",
    r"(yes|no|maybe)( please)?",
    r"[A-Z][a-z]{0,8}, [A-Z][a-z]{0,8}",
    r"(0|[1-9][0-9]{0,3})(\.[0-9]{1,2})?",
    r" leading space",
    r"日本語{1,3}|中文|한국어",
    r"[é-ü]{1,4}",
    r"a*b+",
    r"(?i)hello",
    r"line\none\r\ttwo",
    r"^anchored$",
    r"[^a-z\n]{3}",
    r"https?://[a-z]{1,6}\.(com|org)/?",
    r"#[0-9a-f]{6}",
]
CHOICES = [
    ("red", "green", "blue"),
    ("a", "ab", "abc"),
    ("one two", 'quo"te', "back\\slash", "new\nline"),
    ("日本", "日本語", "👩‍👩‍👧"),
    ("<|im_end|>", "</s>", "<0x41>"),
]


def json_schema(value: Any) -> Constraint:
    return Constraint(Language.JSON_SCHEMA, json.dumps(value))


def many_properties(num: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(num)},
        "additionalProperties": False,
    }


def _twins(keyword: str, depth: int) -> dict[str, Any]:
    """Twice as many ways at every level."""
    defs: dict[str, Any] = {
        f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)
    }
    return {"$defs": defs | {f"d{depth}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def _deep(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


# Refused, each with a sentence that says these words.
REFUSED: dict[str, tuple[Constraint, str]] = {
    "class": (Constraint(Language.REGEX, "["), "unclosed character class"),
    "half an escape": (Constraint(Language.REGEX, "\\\\d\\"), "in the middle of an escape"),
    "look-ahead": (Constraint(Language.REGEX, "(?=a)b"), "look-around"),
    "back reference": (Constraint(Language.REGEX, r"(a)\1"), "backreferences"),
    "word border": (Constraint(Language.REGEX, r"a\bb"), "lookarounds"),
    "no UTF-8": (Constraint(Language.REGEX, r"(?-u:\xff)"), "invalid UTF-8"),
    "parentheses": (Constraint(Language.REGEX, "(" * 3000 + "a" + ")" * 3000), "nest"),
    "long": (Constraint(Language.REGEX, "a" * 200_000), "has 200000 bytes"),
    "no JSON": (Constraint(Language.JSON_SCHEMA, "{"), "EOF"),
    "no object": (Constraint(Language.JSON_SCHEMA, "[]"), "object"),
    "type": (json_schema({"type": "strin"}), "Invalid type: strin"),
    "not": (json_schema({"not": {"type": "string"}}), "keywords that are not supported: not."),
    "if": (json_schema({"if": {}, "then": {}}), "not supported: if, then."),
    "unique": (json_schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
    "names": (json_schema({"type": "object", "propertyNames": {}}), "propertyNames"),
    "lenient": (
        json_schema({"x-guidance": {"lenient": True}, "not": {"type": "string"}}),
        "not supported: not.",
    ),
    "format": (json_schema({"type": "string", "format": "foo"}), "Unknown format: foo"),
    "overlap": (
        json_schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
        "exclude one another",
    ),
    "remote": (json_schema({"$ref": "http://example.com/x"}), "example.com"),
    "itself": (json_schema({"$ref": "#"}), "no token"),
    "nothing": (json_schema({"enum": []}), "."),
    "deep": (json_schema(_deep(200)), "recursion limit"),
    "huge": (json_schema({"enum": ["value"] * 200_000}), "bytes"),
    "no choices": (Constraint(Language.CHOICES), "is empty"),
    "empty choice": (Constraint(Language.CHOICES, choices=("a", "")), "empty text"),
    "many choices": (
        Constraint(Language.CHOICES, choices=tuple(str(n) for n in range(5000))),
        "has 5000 texts",
    ),
    "no start": (Constraint(Language.GRAMMAR, 'x: "a"'), "start"),
    "no rule": (Constraint(Language.GRAMMAR, "start: x"), "unknown name"),
    "other": (Constraint(Language.GRAMMAR, "start: @other"), "unknown grammar"),
    "as JSON": (Constraint(Language.GRAMMAR, '{"grammars": []}'), "."),
    "temperature": (Constraint(Language.GRAMMAR, "start[temperature=0.5]: /x+/"), "temperature"),
    "special": (Constraint(Language.GRAMMAR, "start: <[0]>"), "no token"),
    "special name": (Constraint(Language.GRAMMAR, 'start: <|nope|> "a"'), "special token"),
}
# Taken, and each step stays within its limits.
HEAVY: dict[str, Constraint] = {
    "repeats": Constraint(Language.REGEX, "(a{1,500}){1,500}"),
    "repeats of repeats": Constraint(Language.REGEX, "((a{1,100}){1,100}){1,100}"),
    "stars": Constraint(Language.REGEX, "((((a|b)*)*)*)*c"),
    "pluses": Constraint(Language.REGEX, "(x+x+)+y"),
    "far back": Constraint(Language.REGEX, ".*a.{200}"),
    "far back twice": Constraint(Language.REGEX, "(.*a.{20}b.*c.{20}|[ab]*a[ab]{18})"),
    "forced": Constraint(Language.REGEX, "a{100000}"),
    "written out": Constraint(Language.REGEX, "a" * 100_000),
    "words": Constraint(Language.REGEX, "|".join(f"w{n}" for n in range(15_000))),
    "letters": Constraint(Language.REGEX, r"\p{L}{1,1000}"),
    "all of": json_schema(_twins("allOf", 25)),
    "any of": json_schema(_twins("anyOf", 25)),
    "properties": json_schema(many_properties(2000)),
    "items": json_schema({"type": "array", "items": {"const": "ab"}, "minItems": 100_000}),
    "left recursion": Constraint(Language.GRAMMAR, 'start: start "a" | "a"'),
    "ambiguous": Constraint(Language.GRAMMAR, 'start: s\ns: s s | "a" | "aa" | "aaa"'),
}
