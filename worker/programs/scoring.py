"""Which of several choices is the likeliest, by the logprobs of their tokens. Pure.

Each choice is scored from the same place: the first token in which any of them differs from the
text's own ids. Ties go to the first choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from worker.text.agreement import common_length


def scored_from(text: Sequence[int], choices: Sequence[Sequence[int]]) -> int:
    """Returns how many leading ids all choices share with the text; at least one is left of each.

    text: the ids without a choice; choices: the ids with each of them.
    """
    shared = min(common_length(text, choice) for choice in choices)
    return min(shared, min(map(len, choices)) - 1)


def by_mean(logprobs: Sequence[Sequence[float]]) -> tuple[int, list[float]]:
    """Returns the choice with the highest mean logprob, and every choice's mean."""
    means = [fmean(values) for values in logprobs]
    return means.index(max(means)), means


def by_gain(
    logprobs: Sequence[Sequence[float]], alone: Sequence[Sequence[float]]
) -> tuple[int, list[float]]:
    """Returns the choice whose mean rises most over that of the same tokens behind nothing."""
    gains = [fmean(values) - fmean(bare) for values, bare in zip(logprobs, alone, strict=True)]
    return gains.index(max(gains)), gains


def by_steps(
    tokens: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]]
) -> tuple[int, list[float]]:
    """Returns the choice that the likeliest next tokens lead to, and every choice's mean.

    At each token those with the likeliest one stay. A choice that has ended counts there with the
    mean of its logprobs.
    """
    means = [fmean(values) for values in logprobs]
    left = list(range(len(tokens)))
    for place in range(max(map(len, tokens))):
        values = {
            one: logprobs[one][place] if place < len(tokens[one]) else means[one] for one in left
        }
        best = max(left, key=lambda one: (values[one], -one))
        at = tokens[best][place] if place < len(tokens[best]) else None
        left = [
            one for one in left if (tokens[one][place] if place < len(tokens[one]) else None) == at
        ]
        if len(left) == 1 or at is None:
            break
    return left[0], means
