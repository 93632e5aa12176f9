"""Logits to token ids. Every row is treated by itself, so batch mates change nothing.

Order, as the field has it: bias and bans, penalties, temperature, top-k, top-p, min-p, draw.
Logprobs are those of the model before any of it. What a mask closes is out before the truncation:
it is never drawn, whatever bias and penalties make of the rest.

The draw inverts the distribution function at u = H(seed, choice, position): the noise of a stream
depends on nothing else, so another worker continues it with the same result.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import torch

from worker.request import Sampling, TokenLogprobs, TokenScore
from worker.step import SampleRow

# A nucleus rarely holds more tokens; when it does, the whole vocabulary is sorted.
SORTED_AT_FIRST = 512


def sample(logits: torch.Tensor, rows: list[SampleRow]) -> list[tuple[int, TokenLogprobs | None]]:
    """Returns a token id, and logprobs where asked for, per row of float32 logits [R, vocab]."""
    tokens: list[int | None] = [None] * len(rows)
    plain = [index for index, row in enumerate(rows) if _is_plain_greedy(row)]
    masked = [index for index in plain if rows[index].mask]
    free = [index for index in plain if not rows[index].mask]
    best = [*_best_of(logits, free), *_best_open(logits, rows, masked)]
    for index, found in zip([*free, *masked], best, strict=True):
        tokens[index] = found
    result: list[tuple[int, TokenLogprobs | None]] = []
    for index, row in enumerate(rows):
        token = tokens[index]
        if token is None:
            token = _draw(logits[index].double().cpu().numpy(), row)
        result.append((token, _logprobs(logits[index], token, row.top_logprobs)))
    return result


def _best_of(logits: torch.Tensor, indices: list[int]) -> list[int]:
    """Returns the most likely ids of these rows."""
    return list(logits[indices].argmax(dim=-1).tolist()) if indices else []


def _best_open(logits: torch.Tensor, rows: list[SampleRow], indices: list[int]) -> list[int]:
    """Returns the most likely ids that these rows' masks leave; bits are spread on the device."""
    if not indices:
        return []
    width = logits.shape[-1]
    packed = np.zeros((len(indices), -(-width // 8)), dtype=np.uint8)
    for place, index in enumerate(indices):
        bits = np.frombuffer(rows[index].mask, dtype=np.uint8)[: packed.shape[1]]
        packed[place, : len(bits)] = bits
    shifts = torch.arange(8, dtype=torch.uint8, device=logits.device)
    spread = torch.from_numpy(packed).to(logits.device)[:, :, None] >> shifts
    is_open = (spread & 1).bool().reshape(len(indices), -1)[:, :width]
    best = logits[indices].masked_fill(~is_open, -torch.inf).argmax(dim=-1)
    return list(best.tolist())


def _is_plain_greedy(row: SampleRow) -> bool:
    sampling = row.sampling
    return (
        sampling.greedy
        and not sampling.logit_bias
        and not sampling.needs_history
        and not row.banned
    )


def _draw(scores: np.ndarray, row: SampleRow) -> int:
    sampling = row.sampling
    if sampling.logit_bias:
        ids = np.fromiter(sampling.logit_bias.keys(), dtype=np.int64)
        scores[ids] += np.fromiter(sampling.logit_bias.values(), dtype=np.float64)
    if sampling.needs_history:
        _penalise(scores, row)
    if row.banned:
        scores[list(row.banned)] = -np.inf
    if not row.mask:
        return _pick(scores, row)
    allowed = _open_ids(row.mask, len(scores))
    return int(allowed[_pick(scores[allowed], row)])


def _open_ids(mask: bytes, width: int) -> np.ndarray:
    """Returns the ids that a mask leaves, in order."""
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")[:width]
    return np.flatnonzero(bits)


def _pick(scores: np.ndarray, row: SampleRow) -> int:
    """Returns the place of the score that is taken."""
    sampling = row.sampling
    if sampling.greedy:
        return int(scores.argmax())
    ids, weights = _truncate(scores, sampling)
    cumulative = np.cumsum(weights)
    index = np.searchsorted(
        cumulative, uniform(sampling.seed, row.choice, row.position) * cumulative[-1], side="right"
    )
    return int(ids[min(int(index), len(ids) - 1)])


def _penalise(scores: np.ndarray, row: SampleRow) -> None:
    """Repetition looks at prompt and output, presence and frequency at the output only."""
    sampling = row.sampling
    history = np.frombuffer(row.history, dtype="<i4")
    if sampling.repetition_penalty != 1.0:
        seen = np.unique(history)
        factor = sampling.repetition_penalty
        scores[seen] = np.where(scores[seen] > 0, scores[seen] / factor, scores[seen] * factor)
    ids, counts = np.unique(history[row.prompt_len :], return_counts=True)
    scores[ids] -= sampling.presence_penalty + sampling.frequency_penalty * counts


def _truncate(scores: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids that may be drawn and their weights, relative to the best one's 1."""
    # Subtract first: a tiny temperature must sharpen, not overflow.
    weights = np.exp((scores - scores.max()) / sampling.temperature)
    k = min(sampling.top_k, len(scores)) if sampling.top_k else len(scores)
    if k == len(scores) and sampling.top_p >= 1.0:
        ids = np.flatnonzero(weights >= sampling.min_p)
        return ids, weights[ids]
    for width in (SORTED_AT_FIRST, len(scores)):
        order = _best(weights, min(k, width))
        mass = np.cumsum(weights[order])
        total = mass[-1] if len(order) == k < len(scores) else weights.sum()
        # A token stays when the mass before it is below top_p; the first one always does.
        keep = int(np.count_nonzero(mass - weights[order] < sampling.top_p * total))
        if keep < len(order) or len(order) == k:
            break
    order = order[: max(keep, 1)]
    order = order[weights[order] >= sampling.min_p]
    return order, weights[order]


def _best(weights: np.ndarray, count: int) -> np.ndarray:
    """Returns the ids of the largest weights, largest first, ties by id."""
    if count < len(weights):
        border = np.partition(weights, len(weights) - count)[len(weights) - count]
        ids = np.flatnonzero(weights >= border)
    else:
        ids = np.arange(len(weights))
    return ids[np.argsort(-weights[ids], kind="stable")][:count]


def uniform(seed: int, choice: int, position: int) -> float:
    """Returns the number in [0, 1) that decides the token at a position of a choice."""
    key = struct.pack("<QQQ", seed & (2**64 - 1), choice, position)
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def score(logits: torch.Tensor, target: int) -> TokenScore:
    """Returns the score of one id under one row of float32 logits [vocab]."""
    row = logits.double()
    total = torch.logsumexp(row, dim=-1)
    rank = 1 + int((row > row[target]).sum())
    best = None
    if rank > 1:
        first = int(row.argmax())
        best = (first, float(row[first] - total))
    return TokenScore(float(row[target] - total), rank, best)


def _logprobs(logits: torch.Tensor, token: int, top: int | None) -> TokenLogprobs | None:
    """Natural logarithms, summed in float64 so that they depend on the row alone."""
    if top is None:
        return None
    row = logits.double()
    logprobs = row - torch.logsumexp(row, dim=-1)
    best: list[tuple[int, float]] = []
    if top > 0:
        values, ids = torch.topk(logprobs, min(top, logprobs.shape[-1]))
        best = list(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs((token, float(logprobs[token])), tuple(best))
