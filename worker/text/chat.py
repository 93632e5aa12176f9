"""Chat messages to token ids, and where in them the message boundaries lie (step 7).

    content "a<|im_end|>b" -> marked "a<?|im_end|>b" -> template -> cut at special tokens
                           -> mark "?" removed -> pieces encoded as plain text, special ids between

Text of a client's that spells a special token stays text that way (`marks`), and what was encoded
before isn't encoded again (`pieces`).
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.errors import ContextLengthExceeded, InvalidRequest
from worker.text.agreement import common_length
from worker.text.conversation import normalised
from worker.text.marks import Marks
from worker.text.pieces import Encoded, Pieces
from worker.text.recent import Recent
from worker.text.template import RESERVED, Template
from worker.text.tokenizer import Tokenizer
from worker.text.turns import Recall, TurnIds

REMEMBERED_BOUNDARIES = 1 << 14
TAIL_CHARS = 64
# Boundaries after so few messages are cheap to look at from every side, and shared most.
FEW_MESSAGES = 4

Tools = Sequence[Mapping[str, Any]]
Message = Mapping[str, Any]

NOTHING: tuple[Message, ...] = ()
USER: tuple[Message, ...] = ({"role": "user", "content": "s"},)
# Ways to go on after a boundary, unlike enough that what they share comes from before it.
CONTINUATIONS: tuple[tuple[Message, ...], ...] = (
    NOTHING,
    ({"role": "system", "content": "s"}, *USER),
    USER,
    ({"role": "user", "content": "\n1"},),
    ({"role": "assistant", "content": "s"},),
    ({"role": "assistant", "content": "\n1"}, *USER),
)


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A chat's tokens as packed int32, native byte order (little-endian on what we run on).

    encoded: what they were joined from. recall: where answers in it were found, if any were.
    turn: whose ids its last answer has; None where there is none. tail: the text's last characters.
    """

    packed: bytes
    encoded: Encoded
    recall: Recall | None = None
    turn: TurnIds | None = None
    tail: str = ""

    @property
    def ids(self) -> list[int]:
        """The token ids."""
        ids = array("i")
        ids.frombytes(self.packed)
        return ids.tolist()


@dataclass(frozen=True, slots=True)
class _Chat:
    """A request's own values, marked."""

    messages: list[dict[str, Any]]
    tools: list[Mapping[str, Any]]
    kwargs: dict[str, Any]
    mark: str

    def digests(self) -> list[bytes]:
        """Returns digest k of tools, variables and the first k messages, for k from 0."""
        chain = [_digest(json.dumps([self.tools, self.kwargs]).encode())]
        for message in self.messages:
            chain.append(_digest(chain[-1] + json.dumps(message).encode()))
        return chain


class ChatTemplate:
    """Renders and encodes one model's chats. Safe to use from several threads.

    Where boundaries lie is found by rendering the messages in front of them with what may follow.
    Of several new ones only the last is looked at from every side. The others are seen with
    nothing, a user's word and one more message of the last one's role behind them: that shows what
    a template changes about the messages at hand. What it does to any chat shows at the last
    boundary, and no tokens are fixed at an earlier one that aren't at a later one.
    """

    def __init__(
        self, template: Template, tokenizer: Tokenizer, max_tokens: int | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self.source = template.source
        self._max_tokens = max_tokens
        self._template = template
        self._marks = Marks(tokenizer.special_tokens)
        self._pieces = Pieces(tokenizer)
        self._boundaries: Recent[bytes, tuple[int, bytes]] = Recent(REMEMBERED_BOUNDARIES)

    @classmethod
    def load(
        cls, folder: Path, tokenizer: Tokenizer, max_tokens: int | None = None
    ) -> ChatTemplate:
        """Returns the folder's template; raises ChatUnsupported where there is none.

        max_tokens: a text that is surely longer is refused before it is encoded.
        """
        return cls(Template.load(folder), tokenizer, max_tokens)

    def encode(
        self,
        messages: object,
        tools: Tools = (),
        kwargs: Mapping[str, Any] | None = None,
        recall: Recall | None = None,
    ) -> ChatPrompt:
        """Returns the prompt, the generation prompt included.

        messages: a list of OpenAI messages. kwargs: further variables of the template. recall:
        where this worker's own answers are looked for. Raises InvalidRequest,
        ContextLengthExceeded.
        """
        chat = self._chat(messages, tools, kwargs or {})
        text = self._template.render(chat.messages, chat.tools, chat.kwargs)
        if self._max_tokens is not None:
            fewest = self._tokenizer.fewest_tokens(text)
            if fewest > self._max_tokens:
                raise ContextLengthExceeded(f"at least {fewest}", self._max_tokens)
        encoded = self._pieces.encode(text, chat.mark, recall)
        used = recall if encoded.taken else None
        turn, tail = _turn(chat, encoded), text[-TAIL_CHARS:]
        return ChatPrompt(encoded.ids.tobytes(), encoded, used, turn, tail)

    def following(self, messages: object, position: int) -> array[int]:
        """Returns the ids of what is written behind one message's content, to the end.

        The generation prompt is part of it. position: the message's. Raises InvalidRequest where
        the template writes what stands before differently.
        """
        chat = self._chat(messages, (), {})
        whole = self._template.render(chat.messages, chat.tools, chat.kwargs)
        front = self._template.render(chat.messages[:position], chat.tools, chat.kwargs)
        content = str(chat.messages[position]["content"])
        for said in (content, content.strip()):
            if whole.startswith(front + said):
                behind = whole[len(front) + len(said) :]
                return self._pieces.encode(behind, chat.mark, inner=True).ids
        raise InvalidRequest(
            "program",
            "This model's chat template changes what it wrote before an answer, so nothing can "
            "go on behind one.",
        )

    def boundary_positions(
        self,
        messages: object,
        tools: Tools,
        kwargs: Mapping[str, Any] | None,
        counts: Sequence[int],
        encoded: ChatPrompt,
    ) -> list[int]:
        """Returns, for each k in `counts`, how many leading ids the first k messages fix.

        Those tokens stay, whatever messages follow. `encoded` is what `encode` gave for the same
        chat. A count beyond the number of messages means all of them.
        """
        chat = self._chat(messages, tools, kwargs or {})
        digests, prompt = chat.digests(), encoded.encoded.ids
        wanted = [min(k, len(chat.messages)) for k in counts]
        found: dict[int, int] = {}
        most: int | None = None
        for k in sorted(set(wanted), reverse=True):
            position = self._remembered(digests[k], prompt)
            if position is None:
                every_side = most is None or k <= FEW_MESSAGES
                texts = self._ways(chat, k) if every_side else self._likely_ways(chat, k)
                stable = self._common_tokens(chat, texts, encoded.recall)
                position = common_length(stable, prompt)
                position = position if most is None else min(position, most)
                self._remember(digests[k], prompt, position)
            found[k] = most = position
        return [found[k] for k in wanted]

    def _chat(self, messages: object, tools: Tools, kwargs: Mapping[str, Any]) -> _Chat:
        if taken := RESERVED & kwargs.keys():
            raise InvalidRequest(
                "chat_template_kwargs", f"chat_template_kwargs must not set {min(taken)}."
            )
        plain = normalised(messages, self._template.takes_parts)
        if not self._template.knows_developer:
            plain = [_as_system(message) for message in plain]
        mark, marked = self._marks.put((plain, list(tools), dict(kwargs)))
        return _Chat(*marked, mark=mark)

    def _remembered(self, digest: bytes, prompt: array[int]) -> int | None:
        """Returns where a boundary lies in the prompt, if it was found in the same tokens."""
        known = self._boundaries.get(digest)
        if known is None or known[0] > len(prompt):
            return None
        length, tokens = known
        return length if _digest(prompt[:length].tobytes()) == tokens else None

    def _remember(self, digest: bytes, prompt: array[int], length: int) -> None:
        self._boundaries.put(digest, (length, _digest(prompt[:length].tobytes())))

    def _ways(self, chat: _Chat, k: int) -> list[str]:
        """Returns texts whose common start is that of every chat with the first k messages."""
        return [
            text
            for more in (*CONTINUATIONS, *_one_more(chat.messages[:k]))
            for add_generation_prompt in (False, True)
            if (text := self._rendered(chat, k, more, add_generation_prompt)) is not None
        ]

    def _likely_ways(self, chat: _Chat, k: int) -> list[str]:
        """Returns the same by fewer ways to go on; by all where the template refuses one."""
        ways = (NOTHING, USER, *_one_more(chat.messages[:k]))
        texts = [self._rendered(chat, k, more, False) for more in ways]
        seen = [text for text in texts if text is not None]
        if texts[0] is None or len(seen) < 2:
            return self._ways(chat, k)
        return seen

    def _common_tokens(
        self, chat: _Chat, texts: Sequence[str], recall: Recall | None
    ) -> Sequence[int]:
        """Returns the tokens of what the texts share, without any that could grow behind it."""
        if len(texts) < 2:
            return []
        text = _common_start(texts)
        ids = self._pieces.encode(text, chat.mark, recall).ids
        parted = all(self._pieces.parts_at(whole, len(text)) for whole in texts)
        return ids if parted else self._pieces.cut_back(ids)

    def _rendered(
        self, chat: _Chat, k: int, more: Sequence[Message], add_generation_prompt: bool
    ) -> str | None:
        """Returns the first k messages and more; None where the template does not allow it."""
        messages = [*chat.messages[:k], *more]
        if not messages:
            return None
        try:
            return self._template.render(messages, chat.tools, chat.kwargs, add_generation_prompt)
        except InvalidRequest:
            return None


def _turn(chat: _Chat, encoded: Encoded) -> TurnIds | None:
    """Returns whose ids the last answer of a chat has, None where there is none."""
    answers = [message for message in chat.messages if message["role"] == "assistant"]
    if not answers:
        return None
    content = answers[-1].get("content", "")
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    taken = encoded.taken
    # An answer that is all tool calls can't be told by its text.
    is_there = taken[-1:] if text else len(taken) == len(answers)
    if not is_there or not taken[-1].text.endswith(Marks.removed(text, chat.mark)):
        return TurnIds.MISSED
    return TurnIds.EXACT if all(one.own for one in taken) else TurnIds.RECORDED


def _one_more(head: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """Returns the way to go on that shows whether a template joins messages of one role."""
    if not head or head[-1]["role"] == "user":
        return ()
    last = head[-1]
    kept = {name: last[name] for name in ("role", "name", "tool_call_id") if name in last}
    return (({**kept, "content": "s"},),)


def _as_system(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _common_start(texts: Sequence[str]) -> str:
    """The longest text with which all begin: that of the first and the last in order."""
    first, last = min(texts), max(texts)
    return first[: common_length(first, last)]
