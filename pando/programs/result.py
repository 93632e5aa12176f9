"""What a run gave: values by name, text, and what each node took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pando.errors import UnknownName
from pando.programs.document import Read, Step, messages_of, text_of
from pando.programs.picture import svg
from pando.programs.wire import NodeTrace, Usage

_HEAD = ("node", "op", "tokens", "prompt", "cached", "seconds", "value")
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Result:
    """A run at its end. variables: by the graph's names; a fork's are `name#0.1`.

    nodes: in the graph's order. returned: what the function returned. needs: None, or why it ran
    as a session.
    """

    steps: Sequence[Step]
    variables: Mapping[str, Read]
    nodes: Sequence[NodeTrace]
    usage: Usage
    returned: Any
    needs: str | None

    def __getitem__(self, name: str) -> Any:
        """A value: text, or a list where n was above 1. Raises UnknownName."""
        if name not in self.variables:
            known = ", ".join(self.variables) or "none"
            raise UnknownName(f"No gen or select has set {name!r}; set are: {known}.")
        return self.variables[name]

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def text(self) -> str:
        """The root's text with all values; messages as `role: text`."""
        return text_of(self.steps, self.variables)

    def messages(self) -> list[dict[str, str]]:
        """The root's messages, as chat completions take them."""
        return messages_of(self.steps, self.variables)

    def trace(self) -> str:
        """A table: what each node gave and took."""
        rows = [_HEAD, *(_row(node) for node in self.nodes)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines = [
            "  ".join(
                cell.rjust(width) if 2 <= i <= 5 else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join(lines)

    def graph_svg(self, path: str | Path | None = None) -> str:
        """A picture of the graph as SVG, which is also written to path."""
        picture = svg(self.steps, self.nodes)
        if path is not None:
            Path(path).write_text(picture, "utf-8")
        return picture


def _row(node: NodeTrace) -> tuple[str, ...]:
    value = node.value if len(node.value) <= _MAX_SHOWN else f"{node.value[: _MAX_SHOWN - 1]}…"
    name = f"{node.name}[{node.index}]" if node.index else node.name
    numbers = (node.tokens, node.prompt_tokens, node.cached_tokens)
    return (name, node.op, *map(str, numbers), f"{node.seconds:.3f}", repr(value))
