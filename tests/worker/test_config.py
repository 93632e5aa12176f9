from __future__ import annotations

from pathlib import Path

import pytest

from worker.config import ConfigError, load, parse_size


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text("name: w7\npage_size: 32\nkv_memory: 2GiB\n")
    config = load(file, {"page_size": "64", "threads": None})
    assert (config.name, config.page_size, config.threads) == ("w7", 64, 1)
    assert config.kv_memory_bytes(46_080, 0) == 2 * 1024**3


def test_on_and_off_are_words_in_yaml_too(tmp_path: Path) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text("prefix_cache: off\ndflash: on\ndeterministic: off\n")
    config = load(file, {})
    assert (config.prefix_cache, config.dflash, config.deterministic) == ("off", "on", False)


def test_json_is_read_like_yaml(tmp_path: Path) -> None:
    file = tmp_path / "worker.json"
    file.write_text('{"name": "w1", "prefix_cache": "block"}')
    assert load(file, {}).prefix_cache == "block"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"page_size": "0"}, ("page_size", "'0'", ">= 1")),
        ({"prefix_cache": "lru"}, ("prefix_cache", "'lru'", "radix, block, off")),
        ({"attention": "foo"}, ("attention", "'foo'", "auto, cpu")),
        ({"device": "tpu"}, ("device", "'tpu'")),
        ({"kv_memory": "much"}, ("kv_memory", "'much'")),
        ({"kv_memory": "0 tokens"}, ("kv_memory", "'0 tokens'")),
        ({"kv_memory": "50%%"}, ("kv_memory", "'50%%'")),
        ({"listen": "localhost"}, ("listen", "'localhost'", "HOST:PORT")),
        ({"listen": "localhost:99999"}, ("listen", "65535")),
        ({"name": "a b"}, ("name", "'a b'")),
        ({"name": "a\n"}, ("name", "'a\\n'")),
        ({"device": "cpu\n"}, ("device", "'cpu\\n'")),
        ({"kv_memory": "1G\n"}, ("kv_memory", "'1G\\n'")),
        ({"kv_memory": "5 tokens\n"}, ("kv_memory", "'5 tokens\\n'")),
        ({"kv_cache_dtype": "fp8"}, ("kv_cache_dtype", "'fp8'", "auto, int8")),
        ({"weight_dtype": "int4"}, ("weight_dtype", "'int4'", "auto, float16")),
        ({"dflash": "yes"}, ("dflash", "'yes'", "off, auto, on")),
        ({"dflash_budget": "79"}, ("dflash_budget", "'79'", ">= 80")),
        ({"dflash": "on", "page_size": "8"}, ("page_size", "8", "multiple of 16")),
        ({"dflash": "auto", "deterministic": "true"}, ("dflash", "'auto'", "only off")),
        ({"threads": "many"}, ("threads", "'many'")),
        ({"tls_cert": "c.pem"}, ("tls_cert", "'c.pem'", "needs tls_key")),
        ({"tls_key": "k.pem"}, ("tls_key", "'k.pem'", "needs tls_cert")),
        ({"tls_client_ca": "a.pem"}, ("tls_client_ca", "'a.pem'", "needs tls_cert")),
        (
            {"max_step_tokens": "8", "max_running_sequences": "9"},
            ("max_step_tokens", "8", "max_running_sequences", "9"),
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_range(
    flags: dict[str, str], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, flags)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text("page_sise: 16\n")
    with pytest.raises(ConfigError, match="page_sise"):
        load(file, {})


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\x00"])
def test_a_file_that_is_no_settings_is_a_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"worker\.yaml"):
        load(file, {})


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("1KiB", 1024), ("1.5 MB", 1_500_000), ("2G", 2 * 10**9), ("512MiB", 2**29)],
)
def test_sizes_have_the_usual_units(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_cache_is_sized_by_bytes_tokens_or_a_share_of_what_is_free() -> None:
    def budget(text: str) -> int:
        return load(None, {"kv_memory": text}).kv_memory_bytes(1000, 1_000_000)

    assert budget("64KiB") == 65_536
    assert budget("25%") == budget("25 %") == 250_000
    assert budget("1_000 tokens") == budget("1000tokens") == 63 * 16 * 1000
    for text in ("0%", "101%"):
        with pytest.raises(ConfigError, match=r"kv_memory is '.*': above 0% and at most 100%"):
            budget(text)


def test_the_memory_of_answers_is_a_size_and_may_be_none() -> None:
    assert load(None, {}).turn_memory_bytes == 64 * 1024**2
    assert load(None, {"turn_memory": "0B"}).turn_memory_bytes == 0
    with pytest.raises(ConfigError, match="turn_memory is '60%'"):
        load(None, {"turn_memory": "60%"})
