"""From a submission to what the engine takes: template, tokens, limits (step 7 of a request).

Everything that a client can get wrong about the model is refused here, before a page is touched.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

from worker.cache.interface import TOKEN_BYTES
from worker.errors import ChatUnsupported, ContextLengthExceeded, InvalidRequest
from worker.request import Sampling, Stopping
from worker.sequence import (
    BoundaryPosition,
    SequenceSpec,
    pack_tokens,
    unpack_tokens,
)
from worker.submission import ChatInput, Submission
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request's prompt and rules in tokens, before its sequences have ids."""

    prompt: bytes
    sampling: Sampling
    stopping: Stopping
    boundaries: tuple[BoundaryPosition, ...]

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt) // TOKEN_BYTES


class Intake:
    """Prepares submissions for one model. Safe to use from several threads.

    max_model_len: tokens that prompt and output may have together.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        max_model_len: int,
        rng: random.Random,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._max_model_len = max_model_len
        self._rng = rng

    def prepare(self, submission: Submission) -> Prepared:
        """Returns the request in tokens. Raises InvalidRequest, ContextLengthExceeded."""
        prompt, positions, param = self._encode(submission)
        length = len(prompt) // TOKEN_BYTES
        if length == 0:
            raise InvalidRequest(param, f"{param} must hold at least one token.")
        if length >= self._max_model_len:
            raise ContextLengthExceeded(length, self._max_model_len, param)
        seed = submission.seed
        if seed is None:
            seed = self._rng.getrandbits(63)
        _check_numbers(submission.sampling)
        self._check_ids(submission.sampling.logit_bias, "logit_bias")
        self._check_ids(submission.rules.stop_token_ids, "stop_token_ids")
        return Prepared(
            prompt,
            replace(submission.sampling, seed=seed),
            self._stopping(submission, length),
            positions,
        )

    def _encode(self, submission: Submission) -> tuple[bytes, tuple[BoundaryPosition, ...], str]:
        prompt = submission.prompt
        if isinstance(prompt, ChatInput):
            return *self._encode_chat(submission, prompt), "messages"
        if isinstance(prompt, str):
            fewest = self._tokenizer.fewest_tokens(prompt)
            if fewest > self._max_model_len:
                raise ContextLengthExceeded(f"at least {fewest}", self._max_model_len, "prompt")
            return pack_tokens(self._tokenizer.encode(prompt)), (), "prompt"
        if len(prompt) % TOKEN_BYTES:
            raise InvalidRequest("prompt", "prompt holds a broken token id.")
        self._check_ids(unpack_tokens(prompt), "prompt")
        return prompt, (), "prompt"

    def _encode_chat(
        self, submission: Submission, chat: ChatInput
    ) -> tuple[bytes, tuple[BoundaryPosition, ...]]:
        if self._template is None:
            raise ChatUnsupported
        messages = _json(chat.messages, "messages", list)
        tools = _json(chat.tools, "tools", list) if chat.tools else []
        kwargs = (
            _json(chat.template_kwargs, "chat_template_kwargs", dict)
            if chat.template_kwargs
            else {}
        )
        prompt = self._template.encode(messages, tools, kwargs)
        boundaries = sorted(submission.boundaries, key=lambda one: one.num_messages)
        if not boundaries:
            return prompt.packed, ()
        counts = [one.num_messages for one in boundaries]
        found = self._template.boundary_positions(messages, tools, kwargs, counts, prompt.ids)
        return prompt.packed, tuple(
            BoundaryPosition(boundary.digest, position)
            for boundary, position in zip(boundaries, found, strict=True)
            if position > 0
        )

    def _stopping(self, submission: Submission, prompt_len: int) -> Stopping:
        rules, room = submission.rules, self._max_model_len - prompt_len
        if rules.max_tokens is not None and rules.max_tokens > room:
            raise ContextLengthExceeded(
                prompt_len, self._max_model_len, "max_tokens", rules.max_tokens
            )
        max_tokens = room if rules.max_tokens is None else rules.max_tokens
        if max_tokens < 1:
            raise InvalidRequest("max_tokens", "max_tokens must be at least 1.")
        if rules.min_tokens > max_tokens:
            raise InvalidRequest(
                "min_tokens", f"min_tokens must be at most max_tokens, which is {max_tokens}."
            )
        ids = frozenset(rules.stop_token_ids)
        if not rules.ignore_eos:
            ids |= self._tokenizer.eos_ids
        return Stopping(max_tokens, ids, rules.min_tokens)

    def _check_ids(self, ids: Any, param: str) -> None:
        size = self._tokenizer.vocab_size
        wrong = next((one for one in ids if not 0 <= one < size), None)
        if wrong is not None:
            raise InvalidRequest(
                param, f"{param} holds token id {wrong}; this model has ids from 0 to {size - 1}."
            )


def _check_numbers(sampling: Sampling) -> None:
    """Refuses what would break the sampling of a step, and so of everybody in it."""
    for name, good in (
        ("temperature", 0 <= sampling.temperature < inf),
        ("top_p", 0 <= sampling.top_p <= 1),
        ("min_p", 0 <= sampling.min_p <= 1),
        ("presence_penalty", isfinite(sampling.presence_penalty)),
        ("frequency_penalty", isfinite(sampling.frequency_penalty)),
        ("repetition_penalty", 0 < sampling.repetition_penalty < inf),
        ("logit_bias", all(map(isfinite, sampling.logit_bias.values()))),
    ):
        if not good:
            raise InvalidRequest(name, f"{name} is out of range.")


def specs(prepared: Prepared, submission: Submission, ids: Iterator[int]) -> list[SequenceSpec]:
    """Returns one sequence per choice. Only the first one carries the boundaries."""
    return [
        SequenceSpec(
            id=next(ids),
            namespace=submission.namespace,
            prompt=prepared.prompt,
            sampling=prepared.sampling,
            stopping=prepared.stopping,
            choice=choice,
            top_logprobs=submission.top_logprobs,
            boundaries=prepared.boundaries if choice == 0 else (),
        )
        for choice in range(submission.n)
    ]


def _json(text: bytes, param: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(param, f"{param} is not valid JSON.") from error
    if not isinstance(value, kind):
        raise InvalidRequest(param, f"{param} must be a JSON {kind.__name__}.")
    return value
