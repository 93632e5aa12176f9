"""A program run step by step, one forward of transformers' model after the other, without a cache.

What docs/programs.md says, once more and as plainly as can be: the truth of the tests.
"""

from __future__ import annotations

import codecs
import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch

from tests.worker.programs.rules import Rule, may_follow, rule_of
from worker.text.tokenizer import Tokenizer

Node = dict[str, Any]


@dataclass
class Strip:
    """One branch: ids that are fixed, and the literal text behind them."""

    ids: list[int] = field(default_factory=list)
    pending: str = ""
    whole: str = ""

    def copy(self) -> Strip:
        return Strip(list(self.ids), self.pending, self.whole)


class Plain:
    """Interprets programs without messages; greedy.

    narrowest: by how much the likeliest of anything led over the next one, where rules say nothing.
    """

    def __init__(self, modules: Any, tokenizer: Tokenizer) -> None:
        self.modules = modules
        self.tokenizer = tokenizer
        self.spelled = [tokenizer.token_bytes(one) for one in range(tokenizer.vocab_size)]
        self.plain_ids = [
            one
            for one in range(tokenizer.vocab_size)
            if self.spelled[one] and one not in tokenizer.special_ids
        ]
        self.plain_set = set(self.plain_ids)
        self.spelled_plain = {self.spelled[one] for one in self.plain_ids}
        self.values: dict[str, str] = {}
        self.scores: dict[str, list[float]] = {}
        self.narrowest = math.inf

    def run(self, program: list[Node], *, heals: bool) -> str:
        self.heals = heals
        root = Strip()
        self.branch(program, root)
        return root.whole

    def branch(self, nodes: list[Node], strip: Strip) -> None:
        for node in nodes:
            if node["op"] == "text":
                self.append(strip, self.joined(node["text"]))
            elif node["op"] == "fork":
                for branch in node["branches"]:
                    self.branch(branch, strip.copy())
            elif node["op"] == "gen":
                self.gen(node, strip)
            else:
                self.select(node, strip)

    def append(self, strip: Strip, text: str) -> None:
        strip.pending += text
        strip.whole += text

    def joined(self, parts: list[Any]) -> str:
        return "".join(one if isinstance(one, str) else self.values[one["var"]] for one in parts)

    def encoded(self, ids: list[int], text: str) -> list[int]:
        if not text:
            return list(ids)
        tokenizer = self.tokenizer
        if ids:
            return ids + tokenizer.encode_inner(text)
        return list(tokenizer.lead) + tokenizer.encode_literal(text)

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        """Of what follows each id, float64 [len(ids), vocab]."""
        with torch.inference_mode():
            logits = self.modules(torch.tensor([ids])).logits[0].double()
        return torch.log_softmax(logits, dim=-1)

    def behind(self, ids: list[int]) -> torch.Tensor:
        """The logprobs of what follows all of these ids."""
        with torch.inference_mode():
            logits = self.modules(torch.tensor([ids]), logits_to_keep=1).logits[0, -1]
        return torch.log_softmax(logits.double(), dim=-1)

    def gen(self, node: Node, strip: Strip) -> None:
        ids, prefix = self.encoded(strip.ids, strip.pending), b""
        if self.heals and strip.pending and len(ids) > 1 and self.may_grow(ids[-1], strip.pending):
            ids, prefix = ids[:-1], self.spelled[ids[-1]]
        made: list[int] = []
        self.begun: list[int] = []
        value = ""
        while len(made) < node["max_tokens"]:
            token = self.next(ids + made, made, prefix, rule_of(node))
            if token is None or token in self.tokenizer.eos_ids:
                break
            made.append(token)
            value = self.cut(self.text_of(made, final=True)[len(prefix.decode()) :], node)
            if any(stop in self.text_of(made)[len(prefix.decode()) :] for stop in stops(node)):
                break
        self.values[node["name"]] = value
        kept = self.kept(made, prefix.decode() + value)
        strip.ids = ids + kept
        strip.pending = (prefix.decode() + value)[len(self.text_of(kept)) :]
        strip.whole += value

    def may_grow(self, token: int, text: str) -> bool:
        """Whether it is text of which a longer token could have come."""
        last = self.spelled[token]
        if token in self.tokenizer.special_ids or not text.encode().endswith(last):
            return False
        try:
            last.decode()
        except UnicodeDecodeError:
            return False
        return self.has_longer(last)

    def next(self, ids: list[int], made: list[int], prefix: bytes, rule: Rule | None) -> int | None:
        """The likeliest token that may come, None: none may."""
        row = self.behind(ids)
        if rule is not None:
            return self.matching(row, made, prefix.decode(), rule)
        if not prefix:
            return self.likeliest(row, list(range(len(row))))
        left = prefix[len(b"".join(self.spelled[one] for one in made)) :]
        if left:
            self.begun = self.begun or self.forced(left)
            if self.begun:
                return self.begun.pop(0)
            allowed = [
                one
                for one in self.plain_ids
                if self.spelled[one].startswith(left) or left.startswith(self.spelled[one])
            ]
            return self.likeliest(row, allowed)
        # Behind a taken-back token: whole characters, and of special tokens only the end.
        so_far = b"".join(self.spelled[one] for one in made)
        found = []
        for token in row.argsort(descending=True).tolist():
            ends = token in self.tokenizer.eos_ids and is_text(so_far, whole=True)
            if ends or (token in self.plain_set and is_text(so_far + self.spelled[token])):
                found.append(token)
                if len(found) == 2:
                    return self.likeliest(row, found)
        raise AssertionError("no token goes on")

    def forced(self, left: bytes) -> list[int]:
        """The canonical tokens of text that must come, up to what may join with the text behind."""
        if not is_text(left, whole=True):
            self.narrowest = 0.0  # the rest of a character has no canonical tokens
            return []
        ids = self.tokenizer.encode_inner(left.decode())
        joins = next(n for n in range(len(left) + 1) if self.has_longer(left[n:]))
        sizes = accumulate(len(self.spelled[one]) for one in ids)
        return [one for one, end in zip(ids, sizes, strict=True) if end <= joins]

    def has_longer(self, text: bytes) -> bool:
        return any(one != text and one.startswith(text) for one in self.spelled_plain)

    def likeliest(self, row: torch.Tensor, allowed: list[int]) -> int:
        values = row[torch.tensor(allowed)]
        self.noted(values.tolist() if len(allowed) < 3 else values.topk(2).values.tolist())
        return allowed[int(values.argmax())]

    def noted(self, values: list[float]) -> None:
        """Of these the highest was taken."""
        first, *others = sorted(values, reverse=True)
        if others:
            self.narrowest = min(self.narrowest, first - others[0])

    def matching(self, row: torch.Tensor, made: list[int], prefix: str, rule: Rule) -> int | None:
        """The likeliest token with which the text behind the prefix may still conform."""
        so_far = b"".join(self.spelled[one] for one in made)
        for token in row.argsort(descending=True).tolist():
            if token in self.tokenizer.eos_ids:
                if is_text(so_far, whole=True) and rule.is_whole(so_far.decode()[len(prefix) :]):
                    return int(token)
            elif token in self.plain_set and may_follow(so_far + self.spelled[token], prefix, rule):
                return int(token)
        return None

    def cut(self, text: str, node: Node) -> str:
        found = [text.index(stop) for stop in stops(node) if stop in text]
        return text[: min(found)] if found else text

    def text_of(self, ids: list[int], *, final: bool = False) -> str:
        data = b"".join(self.spelled[one] for one in ids if one not in self.tokenizer.special_ids)
        text = data.decode(errors="replace")
        return text if final or not text.endswith("\ufffd") else data.decode(errors="ignore")

    def kept(self, ids: list[int], whole: str) -> list[int]:
        """The longest beginning of the ids that spells a beginning of the text."""
        for count in range(len(ids), 0, -1):
            if any(one in self.tokenizer.special_ids for one in ids[:count]):
                continue
            data = b"".join(self.spelled[one] for one in ids[:count])
            try:
                data.decode()
            except UnicodeDecodeError:
                continue
            if whole.encode().startswith(data):
                return ids[:count]
        return []

    def select(self, node: Node, strip: Strip) -> None:
        texts = [self.joined(choice) for choice in node["choices"]]
        bare = self.encoded(strip.ids, strip.pending)
        ids = [self.encoded(strip.ids, strip.pending + text) for text in texts]
        first = len(bare)
        for one in ids:
            first = min(
                first,
                next(
                    (n for n, (a, b) in enumerate(zip(bare, one, strict=False)) if a != b),
                    min(len(bare), len(one)),
                ),
            )
        first = min(first, min(map(len, ids)) - 1)
        nothing = list(self.tokenizer.lead) or sorted(self.tokenizer.eos_ids)[:1]
        front = [] if first else nothing
        rows = [self.of_tokens(front + one, first or len(front)) for one in ids]
        means = [sum(row) / len(row) for row in rows]
        method = node.get("method", "token_length_normalized")
        if method == "token_length_normalized":
            scores, best = means, max(range(len(means)), key=lambda n: (means[n], -n))
        elif method == "unconditional_likelihood_normalized":
            alone = [self.of_tokens(nothing + one[first:], len(nothing)) for one in ids]
            scores = [mean - sum(row) / len(row) for mean, row in zip(means, alone, strict=True)]
            best = max(range(len(scores)), key=lambda n: (scores[n], -n))
        else:
            scores, best = means, self.greedy([one[first:] for one in ids], rows, means)
        if method != "greedy_token_selection":
            self.noted(scores)
        self.values[node["name"]], self.scores[node["name"]] = texts[best], scores
        self.append(strip, texts[best])

    def greedy(self, ids: list[list[int]], rows: list[list[float]], means: list[float]) -> int:
        left = list(range(len(ids)))
        place = 0
        while len(left) > 1:
            at = {n: rows[n][place] if place < len(rows[n]) else means[n] for n in left}
            best = max(left, key=lambda n: (at[n], -n))
            # A choice that has ended has no token there.
            tokens = {n: ids[n][place] if place < len(ids[n]) else None for n in left}
            token = tokens[best]
            self.noted([at[best], *(at[n] for n in left if tokens[n] != token)])
            if token is None:
                return best
            left = [n for n in left if tokens[n] == token]
            place += 1
        return left[0]

    def of_tokens(self, ids: list[int], first: int) -> list[float]:
        table = self.logprobs(ids)
        return [float(table[place - 1, ids[place]]) for place in range(first, len(ids))]


def is_text(data: bytes, *, whole: bool = False) -> bool:
    """Whether it is UTF-8, up to a character that is not finished."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def stops(node: Node) -> list[str]:
    return list(node.get("stop", []))
