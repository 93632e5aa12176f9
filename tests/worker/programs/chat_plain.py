"""The plain interpreter for programs of messages: the chat template is transformers' own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from tests.worker.programs.plain import Node, Plain, Strip
from worker.text.tokenizer import Tokenizer


@dataclass
class ChatStrip(Strip):
    """said: the messages that are over; open: the one under way; anchor: the last generated one."""

    said: list[dict[str, str]] = field(default_factory=list)
    open: dict[str, str] | None = None
    is_begun: bool = False
    anchor: int | None = None

    def copy(self) -> ChatStrip:
        return ChatStrip(
            list(self.ids),
            self.pending,
            self.whole,
            list(self.said),
            None if self.open is None else dict(self.open),
            self.is_begun,
            self.anchor,
        )


class ChatPlain(Plain):
    """Interprets programs that are all messages; greedy."""

    def __init__(self, modules: Any, tokenizer: Tokenizer, folder: Path) -> None:
        super().__init__(modules, tokenizer)
        self.template = AutoTokenizer.from_pretrained(folder)

    def run(self, program: list[Node], *, heals: bool) -> str:
        self.heals = heals
        root = ChatStrip()
        self.branch(program, root)
        return "\n".join(message["content"] for message in root.said)

    def branch(self, nodes: list[Node], strip: Strip) -> None:
        assert isinstance(strip, ChatStrip)
        for node in nodes:
            if node["op"] != "message":
                super().branch([node], strip)
                continue
            strip.open = {"role": node["role"], "content": ""}
            strip.pending, strip.is_begun = "", False
            self.branch(node["body"], strip)
            if strip.is_begun:
                strip.ids = self.encoded(strip.ids, strip.pending)
                strip.anchor = len(strip.said)
            strip.said.append(strip.open)
            strip.open, strip.pending, strip.is_begun = None, "", False

    def append(self, strip: Strip, text: str) -> None:
        assert isinstance(strip, ChatStrip)
        assert strip.open is not None
        strip.open["content"] += text
        if strip.open["role"] == "assistant":
            strip.pending += text

    def gen(self, node: Node, strip: Strip) -> None:
        self.begin(strip)
        before = strip.whole
        super().gen(node, strip)
        assert isinstance(strip, ChatStrip)
        assert strip.open is not None
        strip.open["content"] += strip.whole[len(before) :]

    def select(self, node: Node, strip: Strip) -> None:
        self.begin(strip)
        super().select(node, strip)

    def begin(self, strip: Strip) -> None:
        """The ids reach into the assistant's message."""
        assert isinstance(strip, ChatStrip)
        if strip.is_begun:
            return
        text = self.rendered(strip.said)
        if strip.anchor is None:
            strip.ids = self.tokenizer.encode(text)
        else:
            front = self.rendered(strip.said[: strip.anchor]) + strip.said[strip.anchor]["content"]
            assert text.startswith(front)
            strip.ids = strip.ids + self.tokenizer.encode(text[len(front) :])
        strip.is_begun = True

    def rendered(self, messages: list[dict[str, str]]) -> str:
        text: str = self.template.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        return text
