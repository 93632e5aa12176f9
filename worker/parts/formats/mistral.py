"""Mistral: a list behind a special token; later models write the name and the arguments bare."""

from worker.parts.formats.interface import CallFormat

MISTRAL = CallFormat(
    name="mistral",
    trigger="[TOOL_CALLS]",
    lead="[TOOL_CALLS][",
    begin='{"name": "',
    middle='", "arguments": ',
    end="}",
    between=", ",
    close="]",
    marks=("[TOOL_CALLS]",),
)

MISTRAL_BARE = CallFormat(
    name="mistral_bare",
    trigger="[TOOL_CALLS]",
    begin="[TOOL_CALLS]",
    middle="[ARGS]",
    end="",
    marks=("[ARGS]",),
)
