"""What a client was given of each choice: all that another worker needs to go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.request import Ask, NodeOutput, Output, Resume


@dataclass(slots=True)
class _Choice:
    token_ids: bytearray = field(default_factory=bytearray)
    text_chars: int = 0
    finished: bool = False


@dataclass(slots=True)
class _Node:
    """What came of a program's node. last: its last output."""

    token_ids: bytearray = field(default_factory=bytearray)
    texts: list[str] = field(default_factory=list)
    last: NodeOutput | None = None

    def take(self, node: NodeOutput) -> None:
        self.token_ids += node.token_ids
        self.texts.append(node.text)
        self.last = node

    def whole(self) -> NodeOutput:
        """All of it as one."""
        assert self.last is not None
        return replace(self.last, token_ids=bytes(self.token_ids), text="".join(self.texts))


class GivenOut:
    """Written with every output, read when a worker was lost. num_tokens: over all choices.

    has_scores, has_prompt: the prompt's scores, or its text, were given out.
    """

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self.num_tokens = 0
        self._nodes: dict[tuple[str, int], _Node] = {}
        self.has_scores = False
        self.has_prompt = False

    def take(self, output: Output) -> None:
        """The output is on its way to the client."""
        choice = self._choices.get(output.choice)
        if choice is None:
            choice = self._choices[output.choice] = _Choice()
        self.num_tokens += output.num_tokens
        self.has_scores |= bool(output.prompt_scores)
        self.has_prompt |= bool(output.prompt_text)
        choice.token_ids += output.token_ids
        choice.text_chars = output.text_chars or choice.text_chars + len(output.text)
        choice.finished = output.finish_reason is not None
        for node in output.nodes:
            self._nodes.setdefault((node.name, node.index), _Node()).take(node)

    @property
    def num_finished(self) -> int:
        """Choices that ended."""
        return sum(choice.finished for choice in self._choices.values())

    def __bool__(self) -> bool:
        """Whether anything was given out."""
        return bool(self._choices)

    @property
    def step_tokens(self) -> int:
        """Prompt tokens of a program's steps that ended. A gen's values count theirs together."""
        found: dict[str, int] = {}
        for (name, _), node in self._nodes.items():
            assert node.last is not None
            found[name] = max(found.get(name, 0), node.last.prompt_tokens)
        return sum(found.values())

    def left_of(self, ask: Ask) -> Ask:
        """The request as another worker gets it: it goes on behind what was given out."""
        decoding = ask.decoding
        if self.has_scores or self.has_prompt:
            decoding = replace(
                decoding,
                score_prompt=decoding.score_prompt and not self.has_scores,
                echo=decoding.echo and not self.has_prompt,
            )
        return replace(ask, decoding=decoding, resume=self._resume(), nodes=self._nodes_whole())

    def _nodes_whole(self) -> tuple[NodeOutput, ...]:
        """A program's nodes as another worker takes them up."""
        return tuple(node.whole() for (name, _), node in self._nodes.items() if name)

    def _resume(self) -> tuple[Resume, ...]:
        """Each choice as another worker takes it up."""
        return tuple(
            Resume(index, bytes(choice.token_ids), choice.text_chars, choice.finished)
            for index, choice in sorted(self._choices.items())
        )
