"""From a submission to what the engine takes: template, tokens, limits (step 7 of a request).

Everything that a client can get wrong about the model is refused here, before a page is touched.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

from worker.cache.interface import TOKEN_BYTES
from worker.errors import ChatUnsupported, ContextLengthExceeded, InputTooLong, InvalidRequest
from worker.grammar.compiler import Compiler
from worker.parts.manner import WHOLE, Manner, Parting
from worker.prepared import Prepared, scope_of
from worker.programs.house import Programs
from worker.programs.tape import Writer
from worker.request import Sampling, Stopping
from worker.sequence import (
    BoundaryPosition,
    pack_tokens,
    unpack_tokens,
)
from worker.submission import (
    ChatInput,
    Constraint,
    NamedBoundary,
    PairInput,
    ProgramInput,
    Submission,
    Unit,
    Want,
)
from worker.text.chat import ChatTemplate
from worker.text.plain import PlainText
from worker.text.seam import Seams
from worker.text.tokenizer import Tokenizer, UnknownTokenId
from worker.text.turns import Opening, Recall, TurnIds, TurnMemory
from worker.wants import GENERATES, Purpose, told

MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20

# Where ids stand that aren't a prompt.
_IDS = {Want.VALUES: "input", Want.TEXT: "tokens"}
# In place of a digest, which is never empty: where the public part of a prompt ends.
_PUBLIC_END = b""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A prompt in tokens, and where its boundaries lie; the rest as in `Prepared`.

    A boundary that is counted otherwise than this kind of prompt, or lies beyond it, is left out.
    """

    prompt: bytes
    positions: tuple[BoundaryPosition, ...]
    opening: Opening | None = None
    turn: TurnIds | None = None
    parting: Parting = WHOLE
    constraint: Constraint | None = None


class Intake:
    """Prepares submissions for one model. Safe to use from several threads.

    max_model_len: tokens that prompt and output may have together. turns: keeps what was answered;
    None: nothing is kept. purpose: what the model is for.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        max_model_len: int,
        rng: random.Random,
        turns: TurnMemory | None = None,
        purpose: Purpose = GENERATES,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        special = tokenizer.special_tokens
        self._manner = None if template is None else Manner.of(template.source, special)
        self._max_model_len = max_model_len
        self._rng = rng
        self._turns = turns or TurnMemory(0)
        self._purpose = purpose
        self.grammars = Compiler(tokenizer)
        self._plain = PlainText(tokenizer)
        self._seams = Seams(tokenizer)

    def programs(self) -> Programs:
        """Returns where this model's programs are run."""
        return Programs(Writer(self._tokenizer, self._template, self._max_model_len), scope_of)

    def prepare(self, submission: Submission) -> Prepared:
        """Returns the request in tokens. Raises InvalidRequest, ContextLengthExceeded."""
        self._purpose.check(submission)
        encoded = self._encode(submission)
        if submission.want is not Want.GENERATION:
            return self._without_output(submission, encoded)
        prompt, positions = encoded.prompt, encoded.positions
        param = "messages" if isinstance(submission.prompt, ChatInput) else "prompt"
        length = len(prompt) // TOKEN_BYTES
        if length == 0:
            raise InvalidRequest(param, f"{param} must hold at least one token.")
        if length >= self._max_model_len:
            raise ContextLengthExceeded(length, self._max_model_len, param)
        seed = submission.seed
        if seed is None:
            seed = self._rng.getrandbits(63)
        _check_count("n", submission.n, MAX_CHOICES)
        _check_count("top_logprobs", submission.top_logprobs or 0, MAX_TOP_LOGPROBS)
        _check_numbers(submission.sampling)
        self._check_resume(submission)
        self._check_ids(submission.sampling.logit_bias, "logit_bias")
        self._check_ids(submission.rules.stop_token_ids, "stop_token_ids")
        asked = encoded.constraint or submission.constraint
        return Prepared(
            prompt,
            replace(submission.sampling, seed=seed),
            self._stopping(submission, length),
            tuple(one for one in positions if one.digest != _PUBLIC_END),
            next((one.num_tokens for one in positions if one.digest == _PUBLIC_END), 0),
            self._checked(encoded.opening),
            encoded.turn if self._turns.is_on else None,
            grammar=None if asked is None else self.grammars.compile(asked),
            parting=encoded.parting,
        )

    def _without_output(self, submission: Submission, encoded: _Encoded) -> Prepared:
        """Returns what nothing is generated for: told at once, or a prompt with one result."""
        ids = unpack_tokens(encoded.prompt)
        plain = Prepared(encoded.prompt, Sampling(), Stopping(1), ())
        if submission.want is Want.TOKENS:
            return replace(plain, answer=told(tokens=ids))
        if submission.want is Want.TEXT:
            try:
                return replace(plain, answer=told(text=self._tokenizer.decode(ids)))
            except UnknownTokenId as error:
                raise InvalidRequest("tokens", str(error)) from error
        what, param = ("text", "input")
        if isinstance(submission.prompt, PairInput):
            what, param = ("pair of query and document", "documents")
        if not ids:
            raise InvalidRequest(param, f"{param} must hold at least one token.")
        if len(ids) > self._max_model_len:
            raise InputTooLong(what, len(ids), self._max_model_len, param)
        return replace(plain, boundaries=encoded.positions)

    def remember(
        self, opening: Opening, tokens: Sequence[int], text: str, *, drops_space: bool
    ) -> None:
        """Keeps what a choice said for the turns that follow, if its ids spell just that.

        text: what its client was given. drops_space: but for a space in front.
        """
        said = self._seams.said(opening, tokens, text, drops_space)
        if said is None:
            return
        if opening.place.behind is None and self._plain.spells_special(opening, said):
            return
        self._turns.put(opening.place, said)

    def _checked(self, opening: Opening | None) -> Opening | None:
        """Returns an opening whose answers can be remembered."""
        good = opening is not None and self._turns.is_on and self._seams.spells(opening)
        return opening if good else None

    def _recall(self, submission: Submission) -> Recall | None:
        known = self._turns.knows(submission.namespace)
        return Recall(self._turns, submission.namespace) if known else None

    def _encode(self, submission: Submission) -> _Encoded:
        prompt = submission.prompt
        if isinstance(prompt, ChatInput):
            return self._encode_chat(submission, prompt)
        if isinstance(prompt, str):
            return self._encode_text(submission, prompt)
        if isinstance(prompt, PairInput):
            return self._encode_pair(submission, prompt)
        assert not isinstance(prompt, ProgramInput), "programs are run, not prepared"
        if len(prompt) % TOKEN_BYTES:
            raise InvalidRequest("prompt", "prompt holds a broken token id.")
        self._check_ids(unpack_tokens(prompt), _IDS.get(submission.want, "prompt"))
        boundaries = _named(submission, Unit.TOKENS, len(prompt) // TOKEN_BYTES)
        return _Encoded(prompt, _placed(boundaries, [one.count for one in boundaries]))

    def _encode_pair(self, submission: Submission, pair: PairInput) -> _Encoded:
        """Its first boundary lies in front of the document, its second one at the end."""
        assert self._purpose.pairs is not None
        found = self._purpose.pairs.encode(pair.query, pair.document, pair.instruction)
        places = [0, found.shared, len(found.ids)]
        boundaries = _named(submission, Unit.MESSAGES, 2)
        return _Encoded(
            self._encoded(pack_tokens(found.ids), "documents"),
            _placed(boundaries, [places[one.count] for one in boundaries]),
        )

    def _encode_text(self, submission: Submission, text: str) -> _Encoded:
        fewest = self._tokenizer.fewest_tokens(text)
        if fewest > self._max_model_len and submission.want is Want.GENERATION:
            raise ContextLengthExceeded(f"at least {fewest}", self._max_model_len, "prompt")
        boundaries = _named(submission, Unit.CHARS, len(text))
        places = [one.count for one in boundaries]
        plain = self._plain.encode(text, places, self._recall(submission))
        return _Encoded(
            self._encoded(pack_tokens(plain.ids), "prompt"),
            _placed(boundaries, plain.positions),
            self._plain.opening(text, plain.ids, submission.namespace),
        )

    def _encode_chat(self, submission: Submission, chat: ChatInput) -> _Encoded:
        if self._template is None or self._manner is None:
            raise ChatUnsupported
        messages = _json(chat.messages, "messages", list)
        tools = _json(chat.tools, "tools", list) if chat.tools else []
        kwargs = (
            _json(chat.template_kwargs, "chat_template_kwargs", dict)
            if chat.template_kwargs
            else {}
        )
        asked = self._manner.asked(chat, messages, tools)
        messages, tools = asked.messages, asked.tools
        prompt = self._template.encode(messages, tools, kwargs, self._recall(submission))
        self._encoded(prompt.packed, "messages")
        parting, constraint = self._manner.parted(chat, asked, prompt.tail, submission.constraint)
        boundaries = _named(submission, Unit.MESSAGES, len(messages))
        found: list[int] = []
        if boundaries:
            counts = [one.count for one in boundaries]
            found = self._template.boundary_positions(messages, tools, kwargs, counts, prompt)
        opening = prompt.encoded.opening(submission.namespace)
        places = _placed(boundaries, found)
        return _Encoded(prompt.packed, places, opening, prompt.turn, parting, constraint)

    def _stopping(self, submission: Submission, prompt_len: int) -> Stopping:
        rules, room = submission.rules, self._max_model_len - prompt_len
        if rules.max_tokens is not None and rules.max_tokens > room:
            raise ContextLengthExceeded(
                prompt_len, self._max_model_len, "max_tokens", rules.max_tokens
            )
        max_tokens = room if rules.max_tokens is None else rules.max_tokens
        if max_tokens < 1:
            raise InvalidRequest(
                "max_tokens", f"max_tokens is {max_tokens}; it must be at least 1."
            )
        if rules.min_tokens > max_tokens:
            raise InvalidRequest(
                "min_tokens",
                f"min_tokens is {rules.min_tokens}; it must be at most max_tokens, which is "
                f"{max_tokens}.",
            )
        ids = frozenset(rules.stop_token_ids)
        if not rules.ignore_eos:
            ids |= self._tokenizer.eos_ids
        return Stopping(max_tokens, ids, rules.min_tokens)

    def _check_resume(self, submission: Submission) -> None:
        seen = set[int]()
        for one in submission.resume:
            if one.choice >= submission.n:
                raise InvalidRequest(
                    "resume", f"resume names choice {one.choice}; n is {submission.n}."
                )
            if one.choice in seen:
                raise InvalidRequest("resume", f"resume names choice {one.choice} twice.")
            seen.add(one.choice)
            if len(one.tokens) % TOKEN_BYTES:
                raise InvalidRequest("resume", "resume holds a broken token id.")
            self._check_ids(unpack_tokens(one.tokens), "resume")

    def _encoded(self, packed: bytes, param: str) -> bytes:
        """Returns what text was encoded to. Raises InvalidRequest where the model lacks a token."""
        if self._tokenizer.exceeds_model:
            self._check_ids(unpack_tokens(packed), param)
        return packed

    def _check_ids(self, ids: Any, param: str) -> None:
        size = self._tokenizer.vocab_size
        wrong = next((one for one in ids if not 0 <= one < size), None)
        if wrong is not None:
            raise InvalidRequest(
                param, f"{param} holds token id {wrong}; this model has ids from 0 to {size - 1}."
            )


def _named(submission: Submission, unit: Unit, most: int) -> list[NamedBoundary]:
    """Returns the boundaries that are counted in this unit and lie in the prompt, in order.

    The end of the public part is one of them.
    """
    known = [*submission.boundaries]
    if submission.public_messages:
        known.append(NamedBoundary(_PUBLIC_END, submission.public_messages))
    found = [one for one in known if one.unit is unit and one.count <= most]
    return sorted(found, key=lambda one: one.count)


def _placed(boundaries: list[NamedBoundary], positions: list[int]) -> tuple[BoundaryPosition, ...]:
    """Returns the boundaries that have tokens in front of them."""
    return tuple(
        BoundaryPosition(boundary.digest, position)
        for boundary, position in zip(boundaries, positions, strict=True)
        if position > 0
    )


def _check_count(name: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidRequest(name, f"{name} is {count}; it must be at most {most}.")


def _check_numbers(sampling: Sampling) -> None:
    """Refuses what would break the sampling of a step, and so of everybody in it."""
    rules = {
        "temperature": (0 <= sampling.temperature < inf, "finite and at least 0"),
        "top_p": (0 <= sampling.top_p <= 1, "from 0 to 1"),
        "min_p": (0 <= sampling.min_p <= 1, "from 0 to 1"),
        "presence_penalty": (isfinite(sampling.presence_penalty), "finite"),
        "frequency_penalty": (isfinite(sampling.frequency_penalty), "finite"),
        "repetition_penalty": (0 < sampling.repetition_penalty < inf, "finite and above 0"),
    }
    for name, (good, allowed) in rules.items():
        if not good:
            value = getattr(sampling, name)
            raise InvalidRequest(name, f"{name} is {value:g}; it must be {allowed}.")
    for token, bias in sampling.logit_bias.items():
        if not isfinite(bias):
            raise InvalidRequest(
                "logit_bias", f"logit_bias is {bias:g} for token id {token}; it must be finite."
            )


def _json(text: bytes, param: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(param, f"{param} is not valid JSON.") from error
    if not isinstance(value, kind):
        raise InvalidRequest(param, f"{param} must be a JSON {kind.__name__}.")
    return value
