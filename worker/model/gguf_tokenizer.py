"""Repairs the tokenizer that transformers builds from a GGUF file. No torch.

A GGUF names its pre-tokenizer in one word (`tokenizer.ggml.pre`); llama.cpp keeps the table of
those words. transformers knows only some of them and, for the others, silently splits text like
GPT-2, which cuts numbers wrongly. So the word decides here, and an unknown word is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from worker.errors import ModelUnavailable

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _gpt2() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_then_gpt2() -> PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _split(pattern: str) -> PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _llama3() -> PreTokenizer:
    return _split(LLAMA3_SPLIT)


def _qwen2() -> PreTokenizer:
    return _split(QWEN2_SPLIT)


# Byte-level vocabularies (`tokenizer.ggml.model` is "gpt2"), by the names that llama.cpp gives.
PRE_TOKENIZERS: dict[str, Callable[[], PreTokenizer]] = {
    "gpt-2": _gpt2,
    "phi-2": _gpt2,
    "olmo": _gpt2,
    "smollm": _digits_then_gpt2,
    "starcoder": _digits_then_gpt2,
    "refact": _digits_then_gpt2,
    "command-r": _digits_then_gpt2,
    "codeshell": _digits_then_gpt2,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "llama-v3": _llama3,
    "falcon3": _llama3,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": _qwen2,
}


def repair(tokenizer: Tokenizer, kind: str, pre: str | None, add_space_prefix: bool) -> None:
    """Gives `tokenizer` the pre-tokenizer that the file names.

    kind, pre, add_space_prefix: the file's `tokenizer.ggml.model`, `.pre`, `.add_space_prefix`.
    Raises ModelUnavailable for a kind or a name that is not in the table.
    """
    if kind == "llama":
        _repair_sentencepiece(tokenizer, pre, add_space_prefix)
        return
    if kind != "gpt2":
        raise ModelUnavailable(
            f"The GGUF's tokenizer is of kind {kind!r}; only 'gpt2' and 'llama' can be converted."
        )
    build = PRE_TOKENIZERS.get(pre or "")
    if build is None:
        raise ModelUnavailable(
            f"The GGUF's pre-tokenizer {pre!r} is unknown here, and a guess would cut text "
            f"wrongly; known are {', '.join(sorted(PRE_TOKENIZERS))}. "
            "Use the model's safetensors folder."
        )
    tokenizer.pre_tokenizer = build()


def _repair_sentencepiece(tokenizer: Tokenizer, pre: str | None, add_space_prefix: bool) -> None:
    if pre not in (None, "default"):
        raise ModelUnavailable(
            f"The GGUF's sentencepiece pre-tokenizer {pre!r} is unknown here; only 'default' is."
        )
    splitter = tokenizer.pre_tokenizer
    if not add_space_prefix and isinstance(splitter, pre_tokenizers.Metaspace):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement=splitter.replacement, prepend_scheme="never", split=splitter.split
        )
