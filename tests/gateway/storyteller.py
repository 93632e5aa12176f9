"""An engine without a model whose answers depend on seed, choice and position alone.

It keeps the contract of `Resume`: behind what a client has, whatever worker gave it. Text lags one
token behind, as text does that is held back for a stop string.
"""

from __future__ import annotations

import asyncio
import struct
import zlib

from proto import worker_pb2 as pb
from tests.gateway.fake_worker import Line, Script


def token(seed: int, choice: int, position: int) -> int:
    return zlib.crc32(struct.pack("<QII", seed, choice, position)) % 1000


def word(token_id: int) -> str:
    return f" ü{token_id}"


def story(pause_s: float = 0.0) -> Script:
    """A script that tells each choice's story to its end, a token of every choice per step."""

    async def script(submit: pb.Submit, line: Line) -> None:
        taken_up = {one.choice: one for one in submit.resume}
        length = submit.stopping.max_tokens
        tasks = [
            _Choice(submit, choice, taken_up.get(choice, pb.Resume(choice=choice)))
            for choice in range(submit.n)
        ]
        for _ in range(length):
            line.step(outputs=[one.next() for one in tasks if not one.finished])
            await asyncio.sleep(pause_s)
            if all(one.finished for one in tasks):
                break
        line.done(submit.request_id, completion=length * submit.n)

    return script


class _Choice:
    def __init__(self, submit: pb.Submit, choice: int, resume: pb.Resume):
        self._submit = submit
        self._choice = choice
        self._position = len(resume.token_ids) // 4
        ids = struct.unpack(f"<{self._position}i", resume.token_ids)
        expected = [token(submit.sampling.seed, choice, place) for place in range(self._position)]
        assert list(ids) == expected, "the gateway lost or bent tokens"
        told = "".join(map(word, ids))
        assert resume.text_chars <= len(told)
        self._held = told[resume.text_chars :]
        self.finished = resume.finished

    def next(self) -> pb.Output:
        seed = self._submit.sampling.seed
        token_id = token(seed, self._choice, self._position)
        self._position += 1
        text, self._held = self._held, word(token_id)
        self.finished = self._position >= self._length
        if self.finished:
            text += self._held
        return pb.Output(
            request_id=self._submit.request_id,
            choice=self._choice,
            text=text,
            token_ids=struct.pack("<i", token_id),
            logprobs=[self._logprob(token_id)] if self._submit.HasField("top_logprobs") else [],
            finish_reason=pb.LENGTH if self.finished else pb.FINISH_REASON_UNSPECIFIED,
        )

    @property
    def _length(self) -> int:
        """Choices end at different times."""
        return max(1, self._submit.stopping.max_tokens - 2 * self._choice)

    def _logprob(self, token_id: int) -> pb.TokenLogprobs:
        text = word(token_id).encode()
        return pb.TokenLogprobs(
            sampled=pb.Logprob(token_id=token_id, logprob=-token_id, token=text)
        )
