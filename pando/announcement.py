"""What `pando up` says once everything runs: the address and two ways to try it, to be pasted."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Serving:
    """A fleet that answers. url: of the gateway, without a path. needs_key: it knows tenants."""

    url: str
    model: str
    num_workers: int
    prefix_cache: str
    log_folder: Path
    needs_key: bool = False


def announcement(serving: Serving) -> str:
    """Returns the text."""
    workers = "1 worker" if serving.num_workers == 1 else f"{serving.num_workers} workers"
    key = " ($KEY: a tenant's key)" if serving.needs_key else ""
    page = "" if serving.needs_key else f"A page to look at is at {serving.url}/ui.\n"
    return f"""
Pando serves {serving.model} at {serving.url}/v1 ({workers}, prefix cache {serving.prefix_cache}).

With curl{key}:

{curl_line(serving)}

With the openai package, which {shlex.quote(sys.executable)} has{key}:

{openai_snippet(serving)}
{page}Metrics are at {serving.url}/metrics, logs in {serving.log_folder}.
Ctrl-C stops everything.
"""


def curl_line(serving: Serving) -> str:
    """Returns one shell line that asks for a chat completion."""
    body = {
        "model": serving.model,
        "messages": [{"role": "user", "content": "Name three colours."}],
        "temperature": 0,
        "max_tokens": 32,
    }
    key = '-H "authorization: Bearer $KEY" ' if serving.needs_key else ""
    return (
        f"curl -s {shlex.quote(serving.url + '/v1/chat/completions')} {key}"
        f"-H 'content-type: application/json' -d {shlex.quote(json.dumps(body))}"
    )


def openai_snippet(serving: Serving) -> str:
    """Returns a Python program that streams a chat completion."""
    key = 'os.environ["KEY"]' if serving.needs_key else '"none"'
    imports = "import os\n\n" if serving.needs_key else ""
    return f"""{imports}from openai import OpenAI

client = OpenAI(base_url={json.dumps(serving.url + "/v1")}, api_key={key})
stream = client.chat.completions.create(
    model={json.dumps(serving.model)},
    messages=[{{"role": "user", "content": "Name three colours."}}],
    temperature=0,
    max_tokens=32,
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
"""
