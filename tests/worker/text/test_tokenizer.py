from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

from tests.worker.loaded import tokenizer_of
from tests.worker.text.vocabularies import sentencepiece, spelled, vocabulary, write_folder
from worker.errors import ModelUnavailable
from worker.text.tokenizer import Tokenizer, UnknownTokenId

# What llama.cpp makes of these strings with the same vocabulary.
KNOWN = json.loads(Path(__file__).with_name("smollm2_ids.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("sentencepiece")
    return Tokenizer.load(write_folder(folder, sentencepiece(metaspace=True)))


def test_ids_are_those_of_llama_cpp(smollm2: Tokenizer) -> None:
    wrong = {
        text: smollm2.encode_literal(text)
        for text, ids in KNOWN["literal"].items()
        if smollm2.encode_literal(text) != ids
    }
    assert not wrong
    assert len(KNOWN["literal"]) > 50


def test_special_tokens_in_plain_text_are_recognised(smollm2: Tokenizer) -> None:
    assert {text: smollm2.encode(text) for text in KNOWN["special"]} == KNOWN["special"]


def test_digits_are_cut_one_by_one(smollm2: Tokenizer) -> None:
    assert smollm2.encode("1234567") == [33, 34, 35, 36, 37, 38, 39]


def test_literal_text_holds_no_special_token(smollm2: Tokenizer) -> None:
    for token in smollm2.special_tokens:
        ids = smollm2.encode_literal(f"a{token} b")
        assert not smollm2.special_ids & set(ids)
        assert b"".join(map(smollm2.token_bytes, ids)).decode() == f"a{token} b"


@given(text=st.text())
def test_token_bytes_join_to_the_text(smollm2: Tokenizer, text: str) -> None:
    text = spelled(smollm2, text)
    ids = smollm2.encode_literal(text)
    assert b"".join(map(smollm2.token_bytes, ids)).decode() == text


def test_every_token_has_the_bytes_that_the_library_decodes(
    smollm2: Tokenizer, smollm2_folder: Path
) -> None:
    library = Library.from_file(str(smollm2_folder / "tokenizer.json"))
    for token in range(smollm2.vocab_size):
        text = smollm2.token_bytes(token).decode("utf-8", "replace")
        assert text == library.decode([token], skip_special_tokens=False), token


def test_smollm2_ends_with_im_end_and_hides_its_special_tokens(smollm2: Tokenizer) -> None:
    assert smollm2.eos_ids == {2}
    assert smollm2.special_ids == frozenset(range(17))
    assert smollm2.vocab_size == 49152
    assert not smollm2.drops_space


@pytest.mark.parametrize("token", [-1, 49152, 1 << 40])
def test_an_id_outside_the_vocabulary_is_named(smollm2: Tokenizer, token: int) -> None:
    with pytest.raises(UnknownTokenId, match=f"Token id {token} is outside .* 49152"):
        smollm2.token_bytes(token)


def test_bos_is_added_to_text_and_not_to_literal_text(byte_fallback: Tokenizer) -> None:
    assert byte_fallback.encode("a")[0] == 1
    assert byte_fallback.encode_literal("a") == byte_fallback.encode("a")[1:]


def test_byte_fallback_tokens_are_single_bytes(byte_fallback: Tokenizer) -> None:
    ids = byte_fallback.encode_literal("é")
    space = vocabulary()["▁"]
    assert ids == [space, 3 + 0xC3, 3 + 0xA9]
    assert [byte_fallback.token_bytes(token) for token in ids] == [b" ", b"\xc3", b"\xa9"]
    assert byte_fallback.drops_space


def test_text_behind_other_text_gets_no_dummy_prefix(byte_fallback: Tokenizer) -> None:
    assert byte_fallback.encode_literal("the") == [vocabulary()["▁the"]]
    assert byte_fallback.encode_inner("the") == [vocabulary()["t"], vocabulary()["he"]]


def test_eos_ids_come_from_all_three_files(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sentencepiece(metaspace=True), config={"eos_token_id": 7})
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert Tokenizer.load(folder).eos_ids == {2, 5, 6, 7}


def test_padded_ids_of_the_model_have_no_bytes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sentencepiece(metaspace=True), config={"vocab_size": 512})
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.vocab_size == 512
    assert tokenizer.token_bytes(511) == b""


def test_tokens_beyond_the_model_are_known_and_end_nothing(tmp_path: Path) -> None:
    config: dict[str, object] = {"vocab_size": 300, "eos_token_id": [2, 300]}
    folder = write_folder(tmp_path, sentencepiece(metaspace=True), config=config)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.exceeds_model
    assert tokenizer.vocab_size == 300
    assert tokenizer.eos_ids == {2}


def test_truncation_in_the_file_is_not_applied(tmp_path: Path) -> None:
    library = sentencepiece(metaspace=True)
    library.enable_truncation(2)
    library.enable_padding(length=64)
    tokenizer = Tokenizer.load(write_folder(tmp_path, library))
    assert len(tokenizer.encode_literal("bcdfg")) == 6


def test_a_decoder_that_cannot_stream_is_refused_when_bytes_are_asked_for(tmp_path: Path) -> None:
    library = Library(models.WordPiece({"a": 0, "##b": 1, "[UNK]": 2}))
    library.decoder = decoders.WordPiece()
    tokenizer = Tokenizer.load(write_folder(tmp_path, library))
    assert tokenizer.encode("ab") == [0, 1]
    with pytest.raises(ModelUnavailable, match="can't be streamed"):
        tokenizer.token_bytes(0)


def test_an_unreadable_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=f"{tmp_path}: the tokenizer can't be read"):
        Tokenizer.load(tmp_path)


def test_the_text_side_imports_neither_torch_nor_transformers() -> None:
    program = (
        "import sys; import worker.text.tokenizer, worker.text.chat;"
        "import worker.text.detokenizer, worker.text.stops;"
        "import worker.model.files, worker.model.gguf_tokenizer;"
        "sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_other_threads_run_while_a_long_text_is_encoded(smollm2: Tokenizer) -> None:
    done = threading.Event()
    turns = 0

    def encode() -> None:
        smollm2.encode("many words in a row " * 60_000)
        done.set()

    thread = threading.Thread(target=encode)
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 20, "the tokenizer kept the interpreter to itself"


def test_the_fewest_tokens_are_never_more_than_there_are(smollm2: Tokenizer) -> None:
    for text in ("", "a", "\n" + " " * 80, "#" * 400, "word " * 100, "🌲" * 50):
        assert smollm2.fewest_tokens(text) <= len(smollm2.encode(text))
    assert smollm2.fewest_tokens("#" * 400) >= 4
