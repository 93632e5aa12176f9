"""What stands on a decoder's last layer, and how its row becomes what was asked for.

    Vocabulary    a row of logits over all ids, for the sampler
    YesNo         the two rows of the vocabulary's head that answer: the probability of "yes"
    Classifier    the row of the model's own `score`: its sigmoid
    Bare          no head: the last token's vector is the embedding

Values are made in float64 of one row by itself, so a neighbour changes none of their bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import torch

Values = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The model's own head: it generates."""


@dataclass(frozen=True, slots=True)
class YesNo:
    """The ids of the two answers; their rows are all that is kept of the head."""

    no: int
    yes: int

    @property
    def ids(self) -> list[int]:
        """In the order of the row's numbers."""
        return [self.no, self.yes]

    def read(self, row: torch.Tensor) -> Values:
        """Returns the softmax of "yes" among the two, of a row [2]."""
        no, yes = row.double().tolist()
        return (sigmoid(yes - no),)


@dataclass(frozen=True, slots=True)
class Classifier:
    """The `score` of a ...ForSequenceClassification with one label."""

    def read(self, row: torch.Tensor) -> Values:
        """Returns the sigmoid of a row [1]."""
        return (sigmoid(float(row[0])),)


@dataclass(frozen=True, slots=True)
class Bare:
    """No head. normalises: the vector has length 1."""

    normalises: bool = True

    def read(self, row: torch.Tensor) -> Values:
        """Returns the vector of a row [hidden]."""
        vector = row.double()
        if self.normalises:
            # As torch's normalize: a vector of zeros stays one.
            vector = vector / vector.norm().clamp_min(1e-12)
        return tuple(vector.tolist())


VOCABULARY = Vocabulary()
Reading = YesNo | Classifier | Bare
Head = Vocabulary | Reading


def sigmoid(x: float) -> float:
    """Returns 1 / (1 + e^-x), for any finite x."""
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))
