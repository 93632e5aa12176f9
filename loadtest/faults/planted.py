"""A case per kind of fault: what is sent before, what is judged, and what it should be called."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loadtest.faults import values
from loadtest.faults.values import Value
from loadtest.faults.words import Message, Writer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
# What has to happen in a case: behind its first requests, or beside them.
RESTART, RENAME, TWIN = "restart", "rename", "twin"
# A message that begins so counts as so many tokens for a fake worker.
FLOOD = "90000: of something else "


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its path, and its body without the model."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """kind: how the table names it. expected: the reasons that fit. tenant: who sends it.

    event: what happens between its first requests and the judged one; TWIN: both are sent at once.
    """

    kind: str
    expected: tuple[str, ...]
    judged: Sent
    warm: tuple[Sent, ...] = field(default=())
    tenant: str = "plain"
    event: str = ""


def _case(reason: str, judged: Sent, warm: tuple[Sent, ...] = (), tenant: str = "plain") -> Case:
    return Case(reason, (reason,), judged, warm, tenant)


Maker = Callable[[Writer], Case]


def chat(system: str | None, talk: list[Message], tools: Any = None, kwargs: Any = None) -> Sent:
    """A chat request."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    body: dict[str, Any] = {"messages": [*messages, *talk], "max_tokens": 2}
    if tools:
        body["tools"] = tools
    if kwargs:
        body["chat_template_kwargs"] = kwargs
    return Sent(CHAT, body)


def text(prompt: str) -> Sent:
    """A completion."""
    return Sent(TEXT, {"prompt": prompt, "max_tokens": 2})


# ---------------------------------------------------------------- values in the prefix


def _volatile(expected: str, forms: tuple[Value, ...]) -> Maker:
    def make(writer: Writer) -> Case:
        rng = writer.rng
        first, second = values.two(rng, forms)
        where = rng.choice(("system", "system", "tools", "user", "text"))
        before, after = _placed(writer, where, first), None
        after = json.loads(json.dumps(before.body, ensure_ascii=False).replace(first, second))
        later = Sent(before.path, after)
        if where == "user":
            later = _longer(writer, later)
        elif where == "system" and rng.random() < 0.5:
            later = _asked_otherwise(writer, later)
        return _case(expected, later, (before,))

    return make


def _placed(writer: Writer, where: str, value: str) -> Sent:
    """A request with the value in it."""
    rng = writer.rng
    lead = rng.choice(("Now it is", "Current:", "[context]", "Reference", "For the record,"))
    if where == "text":
        return text(f"{lead} {value}\n{writer.system()}\n\n{writer.system()}\n{writer.sentence()}")
    if where == "tools":
        tools = writer.tools()
        described = rng.choice(tools)["function"]
        described["description"] += f" {lead} {value}."
        return chat(writer.system(), writer.talk(0), tools)
    if where == "user":
        talk = writer.talk(0)
        talk[0]["content"] = f"{lead} {value}.\n{writer.paragraph(2, 4)}"
        return chat(writer.system(), talk)
    system = _spliced(writer, writer.system(), f"{lead} {value}.")
    return chat(system, writer.talk(rng.choice((0, 0, 1))))


def _spliced(writer: Writer, system: str, line: str) -> str:
    """The prompt with one more line, at the beginning, in the middle or at the end."""
    lines = system.split("\n")
    lines.insert(writer.rng.choice((0, len(lines) // 2, len(lines))), line)
    return "\n".join(lines)


def _longer(writer: Writer, sent: Sent) -> Sent:
    """The talk's next turn."""
    answer = {"role": "assistant", "content": writer.paragraph(2, 4)}
    question = {"role": "user", "content": writer.sentence()}
    messages = [*sent.body["messages"], answer, question]
    return Sent(sent.path, sent.body | {"messages": messages})


def _asked_otherwise(writer: Writer, sent: Sent) -> Sent:
    """Another talk under the same system prompt."""
    messages = [sent.body["messages"][0], {"role": "user", "content": writer.paragraph(1, 2)}]
    return Sent(sent.path, sent.body | {"messages": messages})


# ---------------------------------------------------------------- order, space, template


def tool_order(writer: Writer) -> Case:
    """The same tools, shuffled."""
    system, tools, talk = writer.system(), writer.tools(), writer.talk(0)
    shuffled = tools[:]
    while shuffled == tools:
        writer.rng.shuffle(shuffled)
    return _case("tool_order", chat(system, talk, shuffled), (chat(system, talk, tools),))


def key_order(writer: Writer) -> Case:
    """The same JSON with its keys shuffled: in the tools, or in a message."""
    rng = writer.rng
    tools, talk = writer.tools(), writer.talk(0)
    other = reordered(tools)
    if rng.random() < 0.5:
        system = writer.system()
        return _case("key_order", chat(system, talk, other), (chat(system, talk, tools),))
    lead = writer.paragraph()
    systems = [f"{lead}\n\nSettings:\n{json.dumps(one)}\n\nUse them." for one in (tools, other)]
    return _case("key_order", chat(systems[1], talk), (chat(systems[0], talk),))


def reordered(value: Any) -> Any:
    """The same parameters with their keys in another order, for sure."""
    changed = copy.deepcopy(value)
    for tool in changed:
        described = tool["function"]
        for holder, key in ((described, "parameters"), (described["parameters"], "properties")):
            names = list(reversed(holder[key]))
            holder[key] = {name: holder[key][name] for name in names}
    return changed


SPACES: tuple[Callable[[str], str], ...] = (
    lambda one: one.replace("\n", "\r\n"),
    lambda one: one + "\n",
    lambda one: "\n" + one,
    lambda one: one.replace("\n\n", "\n"),
    lambda one: one.replace(". ", ".  "),
    lambda one: one.replace("\n- ", "\n  -\t"),
    lambda one: one.replace(" must ", "\u00a0must ").replace(" of ", " of\u00a0", 1),
    lambda one: "\ufeff" + one,
    lambda one: one.replace("assistant", "assis\u200btant"),
    lambda one: "<s>" + one,
    lambda one: "<|begin_of_text|>" + one,
    lambda one: one + "</s>",
)


def whitespace(writer: Writer) -> Case:
    """The same but for space, newlines, marks of the beginning, or what nobody sees."""
    change = writer.rng.choice(SPACES)
    system, talk = writer.system(), writer.talk(0)
    if writer.rng.random() < 0.3:
        rest = f"{writer.system()}\n\n{talk[0]['content']}"
        changed, before = (f"{one}\n\n{rest}" for one in (change(system), system))
        return _case("whitespace", text(changed), (text(before),))
    return _case("whitespace", chat(change(system), talk), (chat(system, talk),))


_TEMPLATES = (
    "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
    "<|im_start|>assistant\n",
    "[INST] <<SYS>>\n{system}\n<</SYS>>\n\n{user} [/INST]",
    "<|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{user}<|eot_id|>",
    "<start_of_turn>user\n{system}\n\n{user}<end_of_turn>\n<start_of_turn>model\n",
    "### System:\n{system}\n\n### User:\n{user}\n\n### Assistant:\n",
    "System: {system}\n\nUser: {user}\n\nAssistant:",
)


_VARIABLES: tuple[dict[str, object], ...] = (
    {},
    {"enable_thinking": False},
    {"enable_thinking": True},
    {"date": "2026-11-30"},
)


def template_drift(writer: Writer) -> Case:
    """Other variables for the template, another template, or one sentence of it edited."""
    rng, system, talk = writer.rng, writer.system(), writer.talk(0)
    kind = rng.choice(("variables", "marks", "text"))
    if kind == "marks":
        first, second = rng.sample(_TEMPLATES, 2)
        told = {"system": f"{system}\n\n{writer.system()}", "user": str(talk[0]["content"])}
        return _case("template_drift", text(second.format(**told)), (text(first.format(**told)),))
    if kind == "variables":
        one, other = rng.sample(_VARIABLES, 2)
        warm, judged = chat(system, talk, kwargs=one), chat(system, talk, kwargs=other)
        return _case("template_drift", judged, (warm,))
    lines = system.split("\n")
    middle = len(lines) // 2
    edited = [*lines[:middle], f"{writer.sentence()}", *lines[middle:]]
    return _case("template_drift", chat("\n".join(edited), talk), (chat(system, talk),))


# ---------------------------------------------------------------- history


def rewritten(writer: Writer) -> Case:
    """A message in the middle is another one than before."""
    rng, system, talk = writer.rng, writer.system(), writer.talk(rng_turns(writer))
    changed = copy.deepcopy(talk)
    place = rng.randrange(0, len(talk) - 2)
    changed[place]["content"] = rng.choice(
        ("[removed]", "Summary: " + writer.sentence(), writer.paragraph(2, 3))
    )
    last = [*changed, *_turn(writer)]
    tools = writer.tools() if rng.random() < 0.3 else None
    return _case("history_rewritten", chat(system, last, tools), _turns(system, talk, tools))


def truncated(writer: Writer) -> Case:
    """The oldest messages are gone: all but the last ones, or one turn less than before."""
    rng, talk = writer.rng, writer.talk(rng_turns(writer))
    system = None if rng.random() < 0.25 else writer.system()
    tools = writer.tools() if system and rng.random() < 0.3 else None
    dropped = rng.choice((1, 2, 2, 3, 4))
    kept = [*talk, *_turn(writer)][dropped:]
    return _case("history_truncated", chat(system, kept, tools), _turns(system, talk, tools))


def rng_turns(writer: Writer) -> int:
    """How long a talk is."""
    return writer.rng.randint(3, 6)


def _turn(writer: Writer) -> list[Message]:
    return [
        {"role": "assistant", "content": writer.paragraph(2, 4)},
        {"role": "user", "content": writer.sentence()},
    ]


def _turns(system: str | None, talk: list[Message], tools: Any = None) -> tuple[Sent, ...]:
    """The talk's requests, turn by turn."""
    return tuple(chat(system, talk[: end + 1], tools) for end in range(0, len(talk), 2))


def tools_changed(writer: Writer) -> Case:
    """A tool more, or one less."""
    system, tools, talk = writer.system(), writer.tools(), writer.talk(0)
    fewer = tools[:-1]
    pair = [chat(system, talk, tools), chat(system, talk, fewer)]
    writer.rng.shuffle(pair)
    return _case("tools_changed", pair[1], (pair[0],))


# ---------------------------------------------------------------- the caches


def evicted(writer: Writer) -> Case:
    """It was cached, and others came."""
    sent = chat(writer.system(), writer.talk(0))
    flood = [chat(f"{FLOOD}{writer.system()}", writer.talk(0)) for _ in range(2)]
    return _case("evicted", sent, (sent, *flood), tenant="pinned")


def other_worker(writer: Writer) -> Case:
    """It lies on one worker and goes to the other."""
    sent = chat(writer.system(), writer.talk(0))
    return _case("other_worker", sent, (sent,), tenant="in_turn")


def never_seen(writer: Writer) -> Case:
    """Nothing like it."""
    if writer.rng.random() < 0.3:
        return _case("never_seen", text(f"{writer.system()}\n{writer.paragraph()}"))
    tools = writer.tools() if writer.rng.random() < 0.5 else None
    turns = writer.rng.choice((0, 0, 1, 3))
    return _case("never_seen", chat(writer.system(), writer.talk(turns), tools))


def hit(writer: Writer) -> Case:
    """The next turn, another talk under the same system prompt, or the same again."""
    rng, system, talk = writer.rng, writer.system(), writer.talk(2)
    tools = writer.tools() if rng.random() < 0.5 else None
    kind = rng.choice(("turn", "talk", "again", "text"))
    if kind == "text":
        lead = f"{writer.system()}\n{writer.system()}"
        return _case("hit", text(f"{lead}\n{writer.sentence()}"), (text(lead),))
    warm = _turns(system, talk, tools)
    if kind == "turn":
        return _case("hit", chat(system, [*talk, *_turn(writer)], tools), warm)
    if kind == "talk":
        return _case("hit", chat(system, writer.talk(0), tools), warm)
    return _case("hit", warm[-1], warm)


MAKERS: dict[str, Maker] = {
    "timestamp": _volatile("timestamp", values.TIMES),
    "uuid": _volatile("uuid", values.UUIDS),
    "volatile_id": _volatile("volatile_id", values.IDS),
    "counter": _volatile("counter", values.COUNTERS),
    "tool_order": tool_order,
    "key_order": key_order,
    "tools_changed": tools_changed,
    "whitespace": whitespace,
    "template_drift": template_drift,
    "history_rewritten": rewritten,
    "history_truncated": truncated,
    "evicted": evicted,
    "other_worker": other_worker,
    "never_seen": never_seen,
    "hit": hit,
}


def cases(count: int, seed: int, names: tuple[str, ...] = tuple(MAKERS)) -> list[Case]:
    """So many of each kind, in any order; the same ones for the same seed."""
    rng = random.Random(seed)
    made = [
        MAKERS[name](Writer(random.Random(rng.getrandbits(64))))
        for name in names
        for _ in range(count)
    ]
    rng.shuffle(made)
    return made
