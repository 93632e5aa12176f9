"""Hermes, Qwen2.5, Qwen3, SmolLM2, and whoever is told of tools in plain words."""

from worker.parts.formats.interface import CallFormat

HERMES = CallFormat(
    name="hermes",
    trigger="<tool_call>",
    begin='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    end="}\n</tool_call>",
    between="\n",
    marks=("<tool_call>",),
)
