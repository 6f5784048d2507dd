"""What every objective is: masks are drawn first, without a gradient; then a loss is computed from what was drawn."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from midmask.encoders.backbone import Backbone
from midmask.identity import Config
from midmask.nouns import Batch, Loss
from midmask.tokens import Vocabulary

KEPT = "backbone."
"""Prefix of the weights that outlive training; all others are the heads."""


class ObjectiveConfig(Config):
    """Base of the objectives' configs; `name` is a literal, the key in the table of objectives."""

    name: str


class Objective(nn.Module, ABC):
    """A loss on a backbone. Subclasses are final.

    `parts`: names of the loss's terms, as logged. `couples_rows`: whether a row's loss depends on the other rows of its
    batch (in-batch negatives), so that cutting the batch into micro-batches would change it.
    """

    parts: ClassVar[tuple[str, ...]]
    couples_rows: ClassVar[bool] = False

    def __init__(self, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.backbone = backbone
        self._vocabulary = vocabulary

    @abstractmethod
    def draw(self, batch: Batch) -> Any:
        """Masks and labels of a batch, on the device the batch is on: a frozen dataclass of tensors. No gradient."""

    @abstractmethod
    def counts(self, drawn: Any) -> dict[str, Tensor]:
        """This worker's number of targets by part, int64 [] on the device, as `forward` will give them.

        Training sums them over workers and micro-batches before the model runs, to divide every part once.
        """

    @abstractmethod
    def forward(self, drawn: Any) -> Loss:
        """Sums and counts of this worker's rows, by part."""

    def vocabulary(self, device: torch.device) -> Vocabulary:
        """The vocabulary, its tables on `device`; they are moved once."""
        if self._vocabulary.continues_V.device != device:
            tables = {name: getattr(self._vocabulary, name).to(device) for name in ("continues_V", "special_V")}
            self._vocabulary = replace(self._vocabulary, **tables)
        return self._vocabulary

    def heads_state(self) -> dict[str, Tensor]:
        """The weights that are thrown away after training; saved beside the backbone so that training can go on."""
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith(KEPT)}

    def load_heads_state(self, state: dict[str, Tensor]) -> None:
        """Takes over what `heads_state` gave.

        Raises:
            RuntimeError: if names or shapes differ.
        """
        kept = {name: tensor for name, tensor in self.state_dict().items() if name.startswith(KEPT)}
        self.load_state_dict({**kept, **state})


def flat_targets(ids_BL: Tensor, chosen_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Where a batch is true, as row numbers of its flattened form, and the ids there; int64, [R] each."""
    rows_R = chosen_BL.flatten().nonzero().squeeze(1)
    return rows_R, ids_BL.flatten()[rows_R]
