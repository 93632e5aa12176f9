"""Llama 3.1 to 3.3: the whole answer is a call, or several of them in a row."""

from worker.parts.formats.interface import CallFormat

LLAMA3 = CallFormat(
    name="llama3",
    trigger="{",
    begin='{"name": "',
    middle='", "parameters": ',
    end="}",
    between="; ",
    opens=True,
    marks=('"parameters": dictionary', "<|python_tag|>"),
)
