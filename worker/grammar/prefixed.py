"""A constraint behind a text that the answer must begin with."""

from __future__ import annotations

import json

from worker.grammar.source import written
from worker.submission import Constraint, Language

_ANY = r"/(.|\n)*/"
_ASKED = "asked"


def prefixed(prefix: str, constraint: Constraint | None) -> Constraint:
    """Returns what begins with the prefix and goes on by the constraint, or as it likes.

    Raises InvalidRequest.
    """
    grammars: list[dict[str, object]] = []
    behind = "REST?"
    lark = f"REST: {_ANY}\n"
    if constraint is not None:
        text = written(constraint).text
        inner = json.loads(text)["grammars"][0] if text.startswith("{") else {"lark_grammar": text}
        grammars.append({**inner, "name": _ASKED})
        behind, lark = f"@{_ASKED}", ""
    start = f"start: {json.dumps(prefix, ensure_ascii=False)} {behind}\n"
    source = json.dumps({"grammars": [{"lark_grammar": start + lark}, *grammars]})
    param = "program" if constraint is None else written(constraint).param
    return Constraint(Language.GRAMMARS, source, param=param)
