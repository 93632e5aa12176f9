from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.loaded import tokenizer_of
from tests.worker.text.vocabularies import sentencepiece, write_folder
from worker.errors import InvalidRequest, ModelUnavailable
from worker.text.pairs import INSTRUCTION, TokenizerPairs, YesNoPairs
from worker.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


def test_the_documents_of_a_query_share_all_in_front_of_them(smollm2: Tokenizer) -> None:
    pairs = YesNoPairs(smollm2)
    found = [pairs.encode("q", text, "") for text in ("one", "\n two", "", " (three)", "😀", "\t")]
    shared = found[0].shared
    assert {one.shared for one in found} == {shared}
    assert len({tuple(one.ids[:shared]) for one in found}) == 1
    assert smollm2.decode(found[0].ids[:shared]).endswith("<Query>: q\n<Document>:")
    assert smollm2.decode(found[0].ids[shared:]).startswith(" one<|im_end|>")


def test_a_prompt_in_pieces_is_the_prompt_at_once(smollm2: Tokenizer) -> None:
    pairs = YesNoPairs(smollm2)
    for document in ("plain words", "1234", "(x)", "\n\nlines", "ünï 漢", "it's 'quoted'", ""):
        pair = f"<Instruct>: {INSTRUCTION}\n<Query>: what's 12?\n<Document>: {document}"
        ids = pairs.encode("what's 12?", document, "").ids
        whole = smollm2.encode_literal(pair)
        assert any(ids[at : at + len(whole)] == whole for at in range(len(ids)))


def test_an_instruction_takes_the_place_of_the_default(smollm2: Tokenizer) -> None:
    pairs = YesNoPairs(smollm2)
    assert INSTRUCTION in smollm2.decode(pairs.encode("q", "d", "").ids)
    own = smollm2.decode(pairs.encode("q", "d", "Find the rude ones").ids)
    assert "<Instruct>: Find the rude ones\n<Query>: q\n<Document>: d<|im_end|>" in own
    assert INSTRUCTION not in own


def test_a_vocabulary_without_turns_or_answers_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sentencepiece(metaspace=True))
    with pytest.raises(ModelUnavailable, match=r"lacks '<\|im_start\|>', '<\|im_end\|>', 'no'"):
        YesNoPairs(Tokenizer.load(folder))


def test_a_tokenizers_pairs_need_no_template_and_read_no_instruction(smollm2: Tokenizer) -> None:
    pairs = TokenizerPairs(smollm2)
    found = pairs.encode("a query", "a document", "")
    assert found.ids == smollm2.encode_literal("a query") + smollm2.encode_literal("a document")
    assert found.shared == len(smollm2.encode_literal("a query"))
    assert smollm2.pair_separator is None
    with pytest.raises(InvalidRequest) as caught:
        pairs.encode("q", "d", "find")
    assert caught.value.param == "instruction"
