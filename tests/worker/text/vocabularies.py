"""Tiny tokenizers of the kinds that SmolLM2's is not, written as model folders."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from worker.text.tokenizer import Tokenizer as WorkerTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:<|>/_\n▁"
MERGES = [("▁", "a"), ("▁", "t"), ("h", "e"), ("▁t", "he"), ("l", "l"), ("▁", "▁"), ("o", "r")]
SPECIAL = ["<unk>", "<s>", "</s>"]
SETTINGS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>"}


def vocabulary() -> dict[str, int]:
    """Special tokens, all bytes, letters, merged pairs: ids in that order."""
    tokens = [
        *SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *LETTERS,
        *(left + right for left, right in MERGES),
    ]
    return {token: number for number, token in enumerate(tokens)}


def sentencepiece(*, metaspace: bool) -> Tokenizer:
    """Byte fallback; the dummy prefix from Metaspace (first word) or a normalizer (each piece)."""
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary(), merges=MERGES, unk_token="<unk>", byte_fallback=True, fuse_unk=True
        )
    )
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.add_special_tokens(
        [
            AddedToken("<|left|>", lstrip=True, normalized=False),
            AddedToken("<|right|>", rstrip=True, normalized=False),
        ]
    )
    return tokenizer


def write_folder(
    folder: Path,
    tokenizer: Tokenizer,
    template: str | None = None,
    config: dict[str, object] | None = None,
) -> Path:
    """Returns the folder, now with what the text side of a worker reads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = SETTINGS | ({"chat_template": template} if template else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(config or {}))
    return folder


def spelled(tokenizer: WorkerTokenizer, text: str) -> str:
    """The text without characters that the vocabulary can't spell.

    SmolLM2's lacks 12 control characters and the bytes of far planes; such text is dropped.
    """
    tokens = range(tokenizer.vocab_size)
    known = {token for number in tokens if len(token := tokenizer.token_bytes(number)) == 1}
    missing = {byte for byte in range(256) if bytes([byte]) not in known}
    return "".join(character for character in text if not missing & set(character.encode()))
