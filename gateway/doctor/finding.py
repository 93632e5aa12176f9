"""What the doctor says of one prompt: why it came from the cache, or why not. Pure values."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from gateway.doctor.volatile import ValueClass


class Reason(enum.Enum):
    """The values are in the metrics, the log and `x-pando-cache`."""

    HIT = "hit"
    # The prompt differs from what was seen.
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    COUNTER = "counter"
    VOLATILE_ID = "volatile_id"
    TOOL_ORDER = "tool_order"
    KEY_ORDER = "key_order"
    TOOLS_CHANGED = "tools_changed"
    WHITESPACE = "whitespace"
    TEMPLATE_DRIFT = "template_drift"
    HISTORY_REWRITTEN = "history_rewritten"
    HISTORY_TRUNCATED = "history_truncated"
    NAMESPACE_CHANGED = "namespace_changed"
    # It is the same, and was not served from a cache.
    EVICTED = "evicted"
    OTHER_WORKER = "other_worker"
    RESTARTED = "restarted"
    STILL_COMPUTING = "still_computing"
    TOO_SHORT = "too_short"
    CACHE_OFF = "cache_off"
    UNEXPLAINED = "unexplained"
    # Nothing like it is known, or nobody looked.
    NEVER_SEEN = "never_seen"
    UNEXAMINED = "unexamined"


OF_VALUES = {
    ValueClass.TIMESTAMP: Reason.TIMESTAMP,
    ValueClass.UUID: Reason.UUID,
    ValueClass.COUNTER: Reason.COUNTER,
    ValueClass.ID: Reason.VOLATILE_ID,
}

_SENTENCES = {
    Reason.HIT: "All that was seen of this prompt before came from a cache.",
    Reason.TIMESTAMP: "A time in {place} changes with the request: move it behind what stays the "
    "same, into the last message.",
    Reason.UUID: "A UUID in {place} changes with the request: move it behind what stays the same, "
    "or leave it out.",
    Reason.COUNTER: "A number in {place} changes with the request: move it behind what stays the "
    "same.",
    Reason.VOLATILE_ID: "An id in {place} changes with the request: move it behind what stays the "
    "same, or leave it out.",
    Reason.TOOL_ORDER: "The same tools come in another order: sort them by name.",
    Reason.KEY_ORDER: "The same JSON in {place} has its keys or entries in another order: write it "
    "with sorted keys.",
    Reason.TOOLS_CHANGED: "Tools were added or removed ({detail}): all that follows them is "
    "computed again. Keep one list, and restrict it by tool_choice.",
    Reason.WHITESPACE: "{place} differs in {detail} only: build it in one way everywhere.",
    Reason.TEMPLATE_DRIFT: "{place} is the same but for its template ({detail}): keep one version "
    "of it in use.",
    Reason.HISTORY_REWRITTEN: "{place} was changed in a conversation that goes on behind it "
    "({detail}): append, and leave what was sent as it is.",
    Reason.HISTORY_TRUNCATED: "The oldest messages were dropped ({detail}), so all others moved: "
    "drop many at once and seldom, or summarise.",
    Reason.NAMESPACE_CHANGED: "The same prompt was cached under another namespace of this tenant: "
    "a new namespace begins empty.",
    Reason.EVICTED: "It was cached and gave way to others ({detail}): the cache is too small, or "
    "the account's share of it.",
    Reason.OTHER_WORKER: "Worker {worker} holds it, and the request went elsewhere ({detail}).",
    Reason.RESTARTED: "Worker {worker}, which held it, {detail}: its cache went with it.",
    Reason.STILL_COMPUTING: "The request that brings it is still being computed: send the first "
    "one ahead, then the others.",
    Reason.TOO_SHORT: "It was seen, and is too short for a page of the cache.",
    Reason.CACHE_OFF: "The worker runs without a prefix cache.",
    Reason.UNEXPLAINED: "It was seen before and did not come from the cache; nothing that is known "
    "here says why.",
    Reason.NEVER_SEEN: "Nothing like it was seen before.",
    Reason.UNEXAMINED: "It was not looked at: more prompts were new than may be examined in a "
    "second.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Why one prompt came from a cache or did not.

    part, name: which part of it, from 0, and what clients call it. offset: characters of the part
    in front of the place; exact for a value, else the beginning of 64 that differ. age_s: since the
    like of it was seen. lost_tokens: that would have come from a cache. times: that the tenant's
    prompts had this there, this one included. worker: who had it. excerpt: text around the place,
    only where the operator allows it.
    """

    reason: Reason
    cached_tokens: int = 0
    prompt_tokens: int = 0
    part: int | None = None
    name: str = ""
    offset: int | None = None
    value: ValueClass | None = None
    detail: str = ""
    age_s: float | None = None
    lost_tokens: int = 0
    times: int = 1
    worker: str = ""
    excerpt: str = ""

    @property
    def place(self) -> str:
        """`messages[0]:31`, or what of it is known."""
        return self.name if self.offset is None else f"{self.name}:{self.offset}"

    @property
    def sentence(self) -> str:
        """What it is and what to do about it, for people."""
        return _SENTENCES[self.reason].format(
            place=self.place or "the prompt",
            detail=self.detail or "no more is known",
            worker=self.worker,
        )

    def header(self) -> str:
        """One line for `x-pando-cache`.

        hit=CACHED/PROMPT, reason=CLASS, at=PLACE, detail=WORD, lost=TOKENS, age=SECONDSs
        """
        told = [f"hit={self.cached_tokens}/{self.prompt_tokens}", f"reason={self.reason.value}"]
        if self.name:
            told.append(f"at={self.place}")
        if self.detail:
            told.append(f"detail={self.detail}")
        if self.lost_tokens:
            told.append(f"lost={self.lost_tokens}")
        if self.age_s is not None and self.reason is not Reason.HIT:
            told.append(f"age={self.age_s:.0f}s")
        return ", ".join(told)
