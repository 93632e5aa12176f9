from __future__ import annotations

import random
from pathlib import Path

import pytest

from proto import worker_pb2 as pb
from tests.worker.text.vocabularies import sentencepiece, write_folder
from worker.errors import InvalidRequest
from worker.intake import Intake
from worker.sequence import pack_tokens
from worker.submission import ChatInput, Submission
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer
from worker.wire import submission

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def intake(folder: Path, vocab_size: int) -> Intake:
    config: dict[str, object] = {"vocab_size": vocab_size}
    write_folder(folder, sentencepiece(metaspace=True), TEMPLATE, config)
    tokenizer = Tokenizer.load(folder)
    template = ChatTemplate.load(folder, tokenizer)
    return Intake(tokenizer, template, 512, random.Random(0))


def test_more_choices_than_allowed_are_refused_and_not_cut(tmp_path: Path) -> None:
    message = pb.Submit(token_ids=pack_tokens([1]), n=129, sampling=pb.Sampling(top_p=1))
    with pytest.raises(InvalidRequest, match=r"^n is 129; it must be at most 128\.$"):
        intake(tmp_path, 512).prepare(submission(message))


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("z", "prompt"),
        (ChatInput(b'[{"role": "user", "content": "z"}]'), "messages"),
        (pack_tokens([300]), "prompt"),
    ],
    ids=["text", "chat", "ids"],
)
def test_a_token_that_the_tokenizer_has_and_the_model_lacks_is_refused(
    tmp_path: Path, prompt: str | bytes | ChatInput, param: str
) -> None:
    """It would be an index outside the embedding, and fail the step for everybody in it."""
    with pytest.raises(InvalidRequest, match="this model has ids from 0 to 258") as caught:
        intake(tmp_path, 259).prepare(Submission(1, prompt))
    assert caught.value.param == param
    assert intake(tmp_path, 512).prepare(Submission(1, prompt)).prompt
