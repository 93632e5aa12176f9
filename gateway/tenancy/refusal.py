"""How limits are told: OpenAI's headers, and why a request is refused. Pure.

OpenAI answers a request that is larger than the whole limit with 429, too; so do we, but without
Retry-After, and `x-should-retry: false` keeps the official clients from trying again.
"""

from __future__ import annotations

import math

from gateway.errors import Headers, RateLimited
from gateway.store.interface import Limit, Limits, Standing, Take, Window
from gateway.tenancy.estimate import Estimate

_SMALLER_REQUEST = "Ask for less with max_tokens or n, or send a shorter prompt"
_SMALLER_PROGRAM = (
    "Give its gens a smaller max_tokens or n, its selects fewer choices or less text in front, or "
    "send it in parts"
)


def limit_headers(limits: Limits, standing: Standing) -> Headers:
    """`x-ratelimit-*`, of the limits that there are."""
    return (
        *_window_headers("requests", limits.requests, standing.requests),
        *_window_headers("tokens", limits.tokens, standing.tokens),
    )


def refusal(tenant: str, take: Take, standing: Standing, headers: Headers) -> RateLimited:
    """Why the take was denied, and when to come back."""
    assert standing.denied_by is not None, "it was admitted"
    limits, wait_s = take.limits, standing.retry_after_s
    if standing.denied_by is Limit.CONCURRENCY:
        what = f"{limits.concurrency} requests at a time"
    elif standing.denied_by is Limit.REQUESTS:
        what = f"{limits.requests} requests a minute"
    else:
        left = standing.tokens.remaining if standing.tokens else 0
        what = (
            f"{limits.tokens} tokens a minute, {left} of them left now, and this request may take "
            f"about {take.tokens}"
        )
    text = f"Rate limit reached for '{tenant}': {what}. Please try again in {duration(wait_s)}."
    wait_ms = str(math.ceil(wait_s * 1000))
    return RateLimited(
        text, standing.denied_by.value, wait_s, (*headers, ("retry-after-ms", wait_ms))
    )


def too_large(tenant: str, wanted: Estimate, limit: int) -> RateLimited:
    """The request can never pass: no wait makes its bound smaller or the limit larger."""
    if wanted.has_steps:
        what, whose, advice = "Program", " of all its steps", _SMALLER_PROGRAM
    else:
        what, whose, advice = "Request", "", _SMALLER_REQUEST
    text = (
        f"{what} too large for '{tenant}': it may take about {wanted.tokens} tokens (about "
        f"{wanted.prompt_tokens} of prompt, up to {wanted.output_tokens} of output{whose}), and "
        f"tokens_per_minute is {limit}, so waiting does not help. {advice}, or have "
        "tokens_per_minute raised."
    )
    headers = (("x-ratelimit-limit-tokens", str(limit)), ("x-should-retry", "false"))
    return RateLimited(text, Limit.TOKENS.value, None, headers)


def duration(seconds: float) -> str:
    """As OpenAI writes it: 0s, 120ms, 7.66s, 6m0s."""
    milliseconds = math.ceil(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, milliseconds = divmod(milliseconds, 60_000)
    rest = f"{milliseconds / 1000:g}s"
    return f"{minutes}m{rest}" if minutes else rest


def _window_headers(name: str, limit: int | None, window: Window | None) -> Headers:
    if limit is None or window is None:
        return ()
    return (
        (f"x-ratelimit-limit-{name}", str(limit)),
        (f"x-ratelimit-remaining-{name}", str(window.remaining)),
        (f"x-ratelimit-reset-{name}", duration(window.reset_s)),
    )
