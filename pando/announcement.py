"""What `pando up` says once everything runs: the address and two ways to try it, to be pasted."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Serving:
    """A fleet that answers. url: of the gateway, without a path."""

    url: str
    model: str
    num_workers: int
    prefix_cache: str


def announcement(serving: Serving) -> str:
    """Returns the text."""
    workers = "1 worker" if serving.num_workers == 1 else f"{serving.num_workers} workers"
    return f"""
Pando serves {serving.model} at {serving.url}/v1 ({workers}, prefix cache {serving.prefix_cache}).

With curl:

{curl_line(serving)}

With the openai package (pip install openai):

{openai_snippet(serving)}
Ctrl-C stops everything.
"""


def curl_line(serving: Serving) -> str:
    """Returns one shell line that asks for a chat completion."""
    body = {
        "model": serving.model,
        "messages": [{"role": "user", "content": "Name three colours."}],
        "max_tokens": 32,
    }
    return (
        f"curl -s {shlex.quote(serving.url + '/v1/chat/completions')} "
        f"-H 'content-type: application/json' -d {shlex.quote(json.dumps(body))}"
    )


def openai_snippet(serving: Serving) -> str:
    """Returns a Python program that streams a chat completion."""
    return f"""from openai import OpenAI

client = OpenAI(base_url={json.dumps(serving.url + "/v1")}, api_key="none")
stream = client.chat.completions.create(
    model={json.dumps(serving.model)},
    messages=[{{"role": "user", "content": "Name three colours."}}],
    max_tokens=32,
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
"""
