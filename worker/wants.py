"""What a worker's task can give, and what the tokenizer answers alone (step 7 of a request's path).

task       generations   values of a pair   values of anything else   tokens, text
generate   yes           -                  -                         yes
rerank     -             yes                -                         yes
embed      -             -                  yes                       yes
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.dflash import OFF, Dflash, Mode
from worker.errors import InvalidRequest
from worker.request import FinishReason
from worker.submission import Output, PairInput, Submission, Want
from worker.text.pairs import Pairs

_DOES = {
    "generate": "This model generates text",
    "rerank": "This model scores pairs of a query and a document",
    "embed": "This model embeds texts",
}


@dataclass(frozen=True, slots=True)
class Purpose:
    """A worker's task. pairs: how it writes pairs; None: it scores none. dflash: its setting."""

    task: str = "generate"
    pairs: Pairs | None = None
    dflash: Dflash = OFF

    def check(self, submission: Submission) -> None:
        """Raises InvalidRequest for what the task can't give."""
        wanted = _task_for(submission)
        if wanted is not None and wanted != self.task:
            raise InvalidRequest("model", f"{_DOES[self.task]}; it doesn't {wanted}.")
        if isinstance(submission.prompt, PairInput) and self.pairs is None:
            raise InvalidRequest("model", f"{_DOES[self.task]}; it takes no pairs.")
        if submission.want is not Want.GENERATION and submission.n != 1:
            raise InvalidRequest("n", f"n is {submission.n}; what isn't generated comes once.")
        if submission.dflash not in (None, Mode.OFF) and not self.dflash.is_possible:
            wish = submission.dflash.value
            raise InvalidRequest("dflash", f"dflash is {wish!r}; this model runs with it off.")
        if submission.want is Want.TEXT and not isinstance(submission.prompt, bytes):
            raise InvalidRequest("prompt", "Only token ids have a text to be told.")


GENERATES = Purpose()


def _task_for(submission: Submission) -> str | None:
    """The task that gives what is wanted; None: each does."""
    if submission.want is Want.GENERATION:
        return "generate"
    if submission.want is not Want.VALUES:
        return None
    return "rerank" if isinstance(submission.prompt, PairInput) else "embed"


def told(text: str = "", tokens: list[int] | None = None) -> Output:
    """Returns an answer that nothing is computed for."""
    return Output(0, text, tokens or [], finish=FinishReason.STOP, text_chars=len(text))
