"""The `modules` member: transformers' own modules over our paged attention.

The ragged batch goes through the model as one flattened sequence [1, T] with explicit positions;
attention is ours by AttentionInterface, and no mask and no cache of transformers' is ever built.
The step travels to the attention function as a keyword argument of the forward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from kernels import Place, make_backend
from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams
from worker.model.errors import UnsupportedModel
from worker.model.heads import VOCABULARY, Classifier, Head, Vocabulary, YesNo
from worker.model.interface import ModelShape

ATTENTION = "pando_pages"
CHECK_LEN = 40
CHECK_TOLERANCE = 1e-3

# Keyword arguments that change nothing about what is attended to.
HARMLESS = frozenset({"output_attentions", "output_router_logits", "position_ids", "use_cache"})


@dataclass(frozen=True, slots=True)
class PagedStep:
    """What the attention function must know of the step."""

    backend: AttentionBackend
    batch: AttentionBatch


def paged_attention(  # noqa: PLR0913 - the signature is transformers'
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    pando_step: PagedStep,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Writes and attends for one layer; query, key, value are [1, heads, T, head_dim].

    Raises UnsupportedModel on an argument that it does not know: it may change the result.
    """
    unknown = sorted(name for name in rest if name not in HARMLESS and rest[name] is not None)
    if unknown or dropout or attention_mask is not None:
        raise UnsupportedModel(
            f"{type(module).__name__} asks attention for what pages do not offer: "
            f"{', '.join(unknown) or 'dropout or a mask of its own'}."
        )
    backend, batch, layer = pando_step.backend, pando_step.batch, int(module.layer_idx)
    flat_query, flat_key, flat_value = (x[0].transpose(0, 1) for x in (query, key, value))
    backend.write(layer, flat_key, flat_value, batch)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    params = AttentionParams(scale, sliding_window, softcap)
    return backend.attend(layer, flat_query, batch, params)[None], None


def _no_mask(*_: Any, **__: Any) -> None:
    """Pages need no mask; without this entry transformers would warn or guess."""


class ModulesModel:
    """Model over transformers' modules; products are torch's, so rows are not bitwise stable.

    Raises UnsupportedModel when the start-up check disagrees with the model's own attention.
    """

    name = "modules"
    bitwise = False

    def __init__(
        self,
        modules: Any,
        shape: ModelShape,
        backend: AttentionBackend,
        place: Place,
        head: Head = VOCABULARY,
    ) -> None:
        self.shape = shape
        self.backend = backend
        self._modules = modules.eval()
        self._place = place
        self._head = head
        if isinstance(head, YesNo):
            _keep_rows(self._modules, head.ids)
        # Under a name of our own: nothing of anyone else's changes.
        AttentionInterface.register(ATTENTION, paged_attention)
        AttentionMaskInterface.register(ATTENTION, _no_mask)
        self._check()

    @torch.no_grad()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        batch: AttentionBatch,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """As Model.forward."""
        step = PagedStep(self.backend, batch)
        return self._run(token_ids, positions, rows, pando_step=step).float()

    def _run(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, **more: Any
    ) -> torch.Tensor:
        """Returns what the head makes of the rows."""
        given = {
            "input_ids": token_ids[None],
            "position_ids": positions[None],
            "use_cache": False,
            **more,
        }
        found: torch.Tensor
        if isinstance(self._head, Vocabulary | YesNo):
            found = self._modules(**given, logits_to_keep=rows).logits[0]
            return found
        # transformers' own classifiers look for the last token by padding; ours is named.
        found = self._modules.base_model(**given).last_hidden_state[0][rows]
        return self._modules.score(found) if isinstance(self._head, Classifier) else found

    @torch.no_grad()
    def _check(self) -> None:
        """Compares 40 tokens in two chunks on pages with the model's own eager attention."""
        device = self._place.device
        length = min(CHECK_LEN, self.shape.max_model_len)
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(self.shape.vocab_size, (length,), generator=generator).to(device)
        positions = torch.arange(length, device=device)
        self._modules.set_attn_implementation("eager")
        expected = self._run(ids, positions, positions)
        self._modules.set_attn_implementation(ATTENTION)
        pool = self.backend.shape
        pages = -(-length // pool.page_size)
        backend = make_backend(self.backend.name, replace(pool, num_pages=pages), self._place)
        parts = []
        for begin, end in ((0, length // 2 + 3), (length // 2 + 3, length)):
            rows = torch.arange(end - begin, device=device)
            step = PagedStep(backend, _one_sequence(begin, end, pool.page_size, device))
            parts.append(self._run(ids[begin:end], positions[begin:end], rows, pando_step=step))
        difference = (torch.cat(parts) - expected).abs().max().item()
        tolerance = CHECK_TOLERANCE if expected.dtype.itemsize >= 4 else 5e-2
        if not difference <= tolerance * max(1.0, expected.abs().max().item()):
            raise UnsupportedModel(
                f"{self.shape.architecture} on pages differs from its own attention by "
                f"{difference:.2e} on {length} tokens."
            )


def _keep_rows(modules: Any, rows: list[int]) -> None:
    """Cuts the head to some ids; what the model does to logits behind it stays."""
    whole = modules.get_output_embeddings()
    cut = torch.nn.Linear(whole.in_features, len(rows), bias=whole.bias is not None)
    cut.weight = torch.nn.Parameter(whole.weight.detach()[rows], requires_grad=False)
    if whole.bias is not None:
        cut.bias = torch.nn.Parameter(whole.bias.detach()[rows], requires_grad=False)
    modules.set_output_embeddings(cut)


def _one_sequence(begin: int, end: int, page_size: int, device: str) -> AttentionBatch:
    """A batch of one sequence's positions [begin, end) whose pages are 0, 1, 2, ..."""
    return AttentionBatch(
        query_start=torch.tensor([0, end - begin], dtype=torch.int32, device=device),
        context_len=torch.tensor([end], dtype=torch.int32, device=device),
        block_table=torch.arange(-(-end // page_size), dtype=torch.int32, device=device)[None],
        slot_mapping=torch.arange(begin, end, device=device),
        page_size=page_size,
        max_query_len=end - begin,
        max_context_len=end,
    )
