"""What a client was given of each choice: all that another worker needs to go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.request import Output, Resume


@dataclass(slots=True)
class _Choice:
    token_ids: bytearray = field(default_factory=bytearray)
    text_chars: int = 0
    finished: bool = False


class GivenOut:
    """Written with every output, read when a worker was lost. num_tokens: over all choices.

    has_scores, has_prompt: the prompt's scores, or its text, were given out.
    """

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self.num_tokens = 0
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

    @property
    def num_finished(self) -> int:
        """Choices that ended."""
        return sum(choice.finished for choice in self._choices.values())

    def __bool__(self) -> bool:
        """Whether anything was given out."""
        return bool(self._choices)

    def resume(self) -> tuple[Resume, ...]:
        """Each choice as another worker takes it up."""
        return tuple(
            Resume(index, bytes(choice.token_ids), choice.text_chars, choice.finished)
            for index, choice in sorted(self._choices.items())
        )
