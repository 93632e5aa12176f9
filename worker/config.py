"""All that an operator may set on a worker: one frozen value, from one file and a few flags.

The file is YAML, and so JSON. An error names the field, its value and the allowed range.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

PositiveInt = Annotated[int, Meta(ge=1)]
# Patterns end with \Z: `$` lets a newline behind it through.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")]
Device = Annotated[str, Meta(pattern=r"^(cpu|cuda(:[0-9]+)?)\Z")]
Size = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?\s*([KMGT]i?)?B?\Z")]
# A size, a share of the memory that is free at the start, or so many tokens.
Budget = Annotated[
    str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?\s*(([KMGT]i?)?B?|%)\Z|^[1-9][0-9_]*\s*tokens\Z")
]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", start=1)}


class ConfigError(ValueError):
    """A setting is wrong; the text says which, what it was and what it may be."""


class WorkerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole worker.

    name: stable identity, the ring's. listen: where gateways connect; port 0: any free one.
    model: a model folder, a .gguf file, or the name of the default model. served_model_name: what
    clients call it; None: the model's own name. task: what it's for; auto: what its files say, but
    a reranker that answers yes or no has to be named. pair_template: how a query and a document are
    written; auto: as Qwen3-Reranker's where yes or no is the answer, else as the tokenizer does.
    check_task: refuse to start where a document that is known to be relevant doesn't beat another.
    kv_memory: budget for K/V pages ("1GiB", "60%" of what is free on the device, "200_000 tokens").
    max_model_len, max_step_tokens: None lets the model and the device decide. max_cached_tokens:
    cap on what lies in the cache unused; None: the whole pool. turn_memory: for the ids of answers,
    which the next turns of a chat take; "0B": none are kept. order: in which waiting requests are
    admitted. short_share: of a step's tokens, what short prompts may take from long ones.
    append_forced: text that a constraint leaves no choice in is appended, not sampled.
    deterministic: refuse to start where outputs are equal only within rounding.
    weight_dtype, kv_cache_dtype: how both are kept; auto: as `dtype` says. dflash: whether decoding
    reads dflash_budget tokens of a long context, or dflash_share of it where that is more; auto:
    from dflash_min_context tokens on, while dflash_min_batch sequences run. Requests may wish
    otherwise unless it is off.
    cuda_graphs: on a GPU, decode steps are captured once per batch size and run again.
    threads: for our CPU kernels. tensor_parallel: over how many processes the model is split.
    registry_url: the Redis in which gateways look for workers; None: they know this one otherwise.
    advertise: HOST:PORT by which they reach it, if not by `listen`.
    tls_cert, tls_key: PEM files; without them the link is in the clear. tls_client_ca: whose
    certificates gateways must bring; None: any gateway may connect.
    metrics_port: 0 serves none. poison_freed_pages: for tests, fills freed pages with NaN.
    """

    name: Name = "worker-0"
    listen: str = "127.0.0.1:0"
    model: str = "smollm2-135m-instruct"
    served_model_name: str | None = None
    task: Literal["auto", "generate", "rerank", "embed"] = "auto"
    pair_template: Literal["auto", "qwen3", "tokenizer"] = "auto"
    check_task: bool = True
    member: Literal["auto", "lowered", "modules"] = "auto"
    device: Device = "cpu"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attention: Literal["auto", "cpu", "triton", "gather", "reference", "flash"] = "auto"
    cuda_graphs: bool = True
    prefix_cache: Literal["radix", "block", "off"] = "radix"
    order: Literal["cache_aware", "first_come"] = "cache_aware"
    short_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    append_forced: bool = True
    deterministic: bool = False
    weight_dtype: Literal["auto", "float16"] = "auto"
    kv_cache_dtype: Literal["auto", "int8"] = "auto"
    dflash: Literal["off", "auto", "on"] = "off"
    dflash_budget: Annotated[int, Meta(ge=80)] = 2048
    dflash_share: Annotated[float, Meta(ge=0, le=1)] = 0.125
    dflash_min_context: PositiveInt = 4096
    dflash_min_batch: PositiveInt = 16
    page_size: Annotated[int, Meta(ge=1, le=1024)] = 16
    kv_memory: Budget = "1GiB"
    max_cached_tokens: PositiveInt | None = None
    turn_memory: Size = "64MiB"
    max_model_len: PositiveInt | None = None
    max_step_tokens: PositiveInt | None = None
    max_running_sequences: PositiveInt = 64
    max_waiting_sequences: Annotated[int, Meta(ge=0)] = 1024
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    tensor_parallel: Annotated[int, Meta(ge=1, le=64)] = 1
    heartbeat_s: Annotated[float, Meta(gt=0)] = 1.0
    drain_s: Annotated[float, Meta(ge=0)] = 30.0
    registry_url: Annotated[str, Meta(pattern=r"^(redis|rediss|unix)://")] | None = None
    registry_prefix: Name = "pando"
    advertise: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    poison_freed_pages: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    def kv_memory_bytes(self, bytes_per_token: int, free_bytes: int) -> int:
        """The K/V budget in bytes, whole pages where it is counted in tokens.

        free_bytes: on the device, before anything is loaded. Raises ConfigError.
        """
        amount = self.kv_memory.replace("_", "").removesuffix("tokens").strip()
        if self.kv_memory.endswith("tokens"):
            num_pages = -(-int(amount) // self.page_size)
            return num_pages * self.page_size * bytes_per_token
        if amount.endswith("%"):
            percent = float(amount[:-1])
            if not 0 < percent <= 100:
                raise ConfigError(f"kv_memory is {self.kv_memory!r}: above 0% and at most 100%.")
            return int(free_bytes * percent / 100)
        return parse_size(self.kv_memory)

    @property
    def turn_memory_bytes(self) -> int:
        """The memory of answers in bytes."""
        return parse_size(self.turn_memory)


def parse_size(text: str) -> int:
    """Returns the bytes that "512MiB", "1.5GB" or "1000" name. Raises ConfigError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?i?)B?", text)
    if found is None or found[2] not in _UNITS:
        raise ConfigError(f"size is {text!r}: a number with B, KiB, MiB, GiB, KB, MB or GB.")
    return int(float(found[1]) * _UNITS[found[2]])


def load(path: Path | None, flags: dict[str, Any]) -> WorkerConfig:
    """Returns the file's settings with the flags put over them. Raises ConfigError."""
    settings: dict[str, Any] = {}
    if path is not None:
        try:
            settings = msgspec.yaml.decode(path.read_bytes()) or {}
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"config file {path}: {error}") from error
        if not isinstance(settings, dict):
            raise ConfigError(f"config file {path} must hold settings by name.")
    settings = _unyaml(settings)
    settings |= {name: value for name, value in flags.items() if value is not None}
    try:
        config = msgspec.convert(settings, WorkerConfig, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(_named(error, settings)) from error
    _parse_address("listen", config.listen)
    if config.advertise is not None:
        _parse_address("advertise", config.advertise)
    _check_tls(config)
    _check_parallel(config)
    _check_dflash(config)
    if config.max_step_tokens is not None and config.max_step_tokens < config.max_running_sequences:
        raise ConfigError(
            f"max_step_tokens is {config.max_step_tokens}: at least max_running_sequences, "
            f"which is {config.max_running_sequences}."
        )
    return config


def _unyaml(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the words on and off where YAML has made truth values of them."""
    words = {True: "on", False: "off"}
    hints = get_type_hints(WorkerConfig)
    return {
        name: words[value]
        if isinstance(value, bool) and words[value] in get_args(hints.get(name))
        else value
        for name, value in settings.items()
    }


def _parse_address(name: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{name} is {address!r}: HOST:PORT with a port from 0 to 65535.")


def _check_tls(config: WorkerConfig) -> None:
    """Refuses half of a setting, which would leave the link in the clear without a word."""
    for name, needed in (
        ("tls_cert", "tls_key"),
        ("tls_key", "tls_cert"),
        ("tls_client_ca", "tls_cert"),
    ):
        value = getattr(config, name)
        if value is not None and getattr(config, needed) is None:
            raise ConfigError(f"{name} is {value!r}: it needs {needed}, which is not set.")


def _check_parallel(config: WorkerConfig) -> None:
    """Refuses what can't be had of a model over several ranks."""
    if config.tensor_parallel == 1:
        return
    if config.member == "lowered":
        raise ConfigError(
            f"tensor_parallel is {config.tensor_parallel}: member 'lowered' can't be split; "
            "set member to auto or modules."
        )
    if config.deterministic:
        raise ConfigError(
            f"tensor_parallel is {config.tensor_parallel}: deterministic is true, and sums over "
            "ranks are equal only within rounding; only 1 will do."
        )
    if ":" in config.device:
        raise ConfigError(
            f"device is {config.device!r}: with tensor_parallel {config.tensor_parallel} it is "
            "'cuda', and the ranks take the first devices (CUDA_VISIBLE_DEVICES says which)."
        )


def _check_dflash(config: WorkerConfig) -> None:
    if config.dflash == "off":
        return
    if config.deterministic:
        raise ConfigError(
            f"dflash is {config.dflash!r}: deterministic is true, and dflash leaves out parts of "
            "a context; only off will do."
        )
    if config.page_size % 16:
        raise ConfigError(
            f"page_size is {config.page_size}: with dflash {config.dflash!r} it is a multiple of "
            "16, which are chosen together."
        )


def _named(error: msgspec.ValidationError, settings: dict[str, Any]) -> str:
    text = str(error)
    field = re.search(r"`\$\.([A-Za-z_]+)`", text)
    if field is None:
        return text
    says = text.split(" - at ", maxsplit=1)[0]
    if "enum" in says:
        says = f"one of {', '.join(get_args(get_type_hints(WorkerConfig)[field[1]]))}"
    return f"{field[1]} is {settings.get(field[1])!r}: {says}"
