"""A pair or a text as a part of a job, and what all these answers have in common.

Each pair and each text is a part by itself: quotas, turns, routing, retries and the bill are those
of generations, and the parts of one query go where its beginning lies. Part i is choice i of the
answer, so the order of the answer is the order of the question, whoever was faster.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from gateway.config import LimitConfig
from gateway.http.intake import Caller
from gateway.job import Job, Part
from gateway.request import (
    Ask,
    Decoding,
    Output,
    PairPrompt,
    Prompt,
    Sampling,
    Stopping,
    TextPrompt,
    TokenPrompt,
    Usage,
    Want,
)
from gateway.routing import route
from gateway.routing.prefix import Chain, Scope, chat_chain, text_chain, token_chain

# Nothing is drawn and nothing stops.
_NONE = Decoding(Sampling(), Stopping())


class CachedDetails(Struct, frozen=True, gc=False):
    """How much of the prompts was not computed again."""

    cached_tokens: int


class PromptUsage(Struct, frozen=True):
    """OpenAI's usage object of what has no output."""

    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedDetails


def usage_of(usage: Usage) -> PromptUsage:
    """What all parts used."""
    details = CachedDetails(usage.cached_tokens)
    return PromptUsage(usage.prompt_tokens, usage.prompt_tokens, details)


def values_in_order(outputs: Iterable[Output]) -> list[tuple[float, ...]]:
    """Each part's values, in the order of the parts."""
    found = {output.choice: output.values for output in outputs if output.values}
    return [found[position] for position in sorted(found)]


class Asker:
    """Makes parts for one caller and one model. lead: characters that name a text's prefix.

    user: the session, if the headers name none.
    """

    def __init__(self, caller: Caller, model: str, lead: int, user: str | None = None):
        self._caller = caller
        self._model = model
        self._lead = lead
        self._session = caller.overrides.session or user
        self._scope = Scope(model, caller.tenant.namespace)

    def pair(self, pair: PairPrompt) -> Part:
        """Have a pair scored. Its boundaries lie behind the query, and behind the document."""
        asked: dict[str, object] = {"role": "system", "asked": [pair.instruction, pair.query]}
        document: dict[str, object] = {"role": "user", "document": pair.document}
        chain = chat_chain(self._scope, [asked, document], overrides=self._caller.overrides)
        return self.part(chain, pair, Want.VALUES)

    def plain(self, prompt: TextPrompt | TokenPrompt, want: Want) -> Part:
        """Have a text embedded, or its tokens or its text told."""
        overrides = self._caller.overrides
        if isinstance(prompt, TextPrompt):
            chain = text_chain(self._scope, prompt.text, self._lead, overrides)
        else:
            chain = token_chain(self._scope, prompt.token_ids, self._lead, overrides)
        return self.part(chain, prompt, want)

    def part(self, chain: Chain, prompt: Prompt, want: Want) -> Part:
        """One prompt."""
        tenant = self._caller.tenant
        ask = Ask(
            trace_id=self._caller.request_id,
            tenant=tenant.id,
            namespace=tenant.namespace,
            prompt=prompt,
            decoding=_NONE,
            share=tenant.share,
            want=want,
        )
        where = route.Want(self._model, tenant.id, chain, tenant.policy, self._session)
        return Part(where, ask)

    def job(self, name: str, parts: Iterable[Part]) -> Job:
        """All parts of a request. name: the route's."""
        caller = self._caller
        return Job(caller.request_id, caller.tenant, self._model, name, tuple(parts))


def most_pairs(limits: LimitConfig) -> str:
    """What is said where there are too many."""
    return f"at most {limits.documents} are allowed"
