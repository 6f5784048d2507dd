"""The interface of objectives: first masks are drawn, without a gradient, then a loss is computed with them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from midmask.core.batch import Batch, Loss, Part
from midmask.core.config import Config
from midmask.encoders.backbone import Backbone
from midmask.encoders.families import BackboneShape
from midmask.encoders.model_settings import vector_width
from midmask.errors import UserError
from midmask.store.pretrained import model_folder
from midmask.text.vocabulary import Vocabulary

KEPT = "backbone."
"""Prefix of the weights that outlive training; all others are the heads."""


@dataclass(frozen=True)
class RowForm:
    """The form of the rows that an objective pre-trains on."""

    # passages: a passage; packed: exactly max_length tokens of passages end to end; spans: two spans of a document
    # ("passage" and "context"); pseudo_queries: a passage and a query for it ("context")
    rows: Literal["passages", "packed", "spans", "pseudo_queries"] = "passages"
    # How the second span is chosen
    context: Literal["any", "random", "nearby", "overlap", "mixed", "recurring"] = "any"
    term_weights: bool = False  # whether each token comes with its weight
    teacher: str | None = None  # name or folder of an encoder, whose vector of each passage comes with it


class ObjectiveConfig(Config):
    """Base of the objectives' configs; `name` is a literal, the key in the table of objectives.

    trains_queries: whether texts go through the encoder as queries too, so that a query expert learns. factors: the
    fields that weigh the terms of the loss, if they are of all its terms. contrastive: whether a text is told from the
    texts of other rows.
    """

    trains_queries: ClassVar[bool] = False
    factors: ClassVar[tuple[str, ...]] = ()
    contrastive: ClassVar[bool] = False
    name: str

    @property
    def compares_rows(self) -> bool:
        """Whether a text is told from the texts of other rows, with these settings."""
        return self.contrastive

    @property
    def remembers_rows(self) -> bool:
        """Whether rows of earlier steps are among those that a text is told from."""
        return False

    def row_form(self) -> RowForm:
        return RowForm()

    def places(self) -> tuple[str, ...]:
        """Folders that the method reads models from: their contents are part of a run's identity."""
        return ()

    def check(self, shape: BackboneShape) -> None:
        """Raises UserError if the method cannot be carried out on a backbone of this shape; called before any work."""

    def check_learns(self, batch_size: int) -> None:
        """Raises UserError if a middle training by this method, with steps of so many rows, learns nothing."""
        if self.factors and not any(getattr(self, name) for name in self.factors):
            first = f"objective.{self.factors[0]}"
            raise UserError(
                f"{' = '.join(f'objective.{name}' for name in self.factors)} = 0: no term of the loss is left, so "
                f"nothing can be learned; set {first}=1.0"
            )
        if self.compares_rows and not self.remembers_rows and batch_size == 1:
            raise UserError(
                f"pretrain.batch_size = 1 with objective.name = {self.name}: a text is told from the others of its "
                "batch, and there are none, so nothing can be learned; set pretrain.batch_size=2 or more"
            )


class Objective(nn.Module, ABC):
    """A loss on a backbone. Subclasses are final, but for `CoupledObjective`."""

    config: Any  # subclasses name its type
    backbone: Backbone  # or what else of a subclass outlives training
    parts: ClassVar[tuple[str, ...]]  # names of the loss's terms, as logged

    def __init__(self, config: ObjectiveConfig, backbone: Any, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.backbone, self._vocabulary = config, backbone, vocabulary
        self.add_heads()

    def add_heads(self) -> None:
        """Makes the modules that are dropped after training, with fresh weights; by default there are none."""

    @abstractmethod
    def draw(self, batch: Batch) -> Any:
        """Masks and labels of a batch, on the device the batch is on: a frozen dataclass of tensors. They depend on
        no weight that learns.
        """

    @abstractmethod
    def counts(self, drawn: Any) -> dict[str, Tensor]:
        """This worker's number of targets by part, int64 [] on the device, as `forward` will give them.

        Training sums them over workers and micro-batches before the model runs, to divide every part once.
        """

    @abstractmethod
    def forward(self, drawn: Any) -> Loss:
        """Sums and counts of this worker's rows, by part."""

    def health(self, drawn: Any) -> dict[str, Tensor]:
        """Measures of whether the method works as intended, by name, shape [] each; computed without a gradient, from
        time to time.
        """
        return {}

    def vocabulary(self, device: torch.device) -> Vocabulary:
        """The vocabulary, its tables on `device`; they are moved once."""
        if self._vocabulary.continues_V.device != device:
            names = ("continues_V", "special_V", "stop_V")
            tables = {name: getattr(self._vocabulary, name).to(device) for name in names}
            self._vocabulary = replace(self._vocabulary, **tables)
        return self._vocabulary

    def heads_state(self) -> dict[str, Tensor]:
        """The weights that are dropped after training; saved beside the backbone so that training can go on."""
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith(KEPT)}

    @torch.no_grad()
    def take_over(self, state: dict[str, Tensor]) -> list[str]:
        """Copies from another objective's `heads_state` the tensors whose name and shape are also in this one; the rest
        keeps its values.

        Returns:
            The names, in order.
        """
        state_here = self.heads_state()
        taken = [name for name in state_here if name in state and state[name].shape == state_here[name].shape]
        for name in taken:
            state_here[name].copy_(state[name])
        return taken


@dataclass(frozen=True)
class Represented:
    """The vectors of a batch, each computed from its row alone.

    All tensors have rows along their first axis, so that those of several micro-batches can be concatenated.
    """

    vectors: tuple[Tensor, ...]  # float, with gradient
    facts: tuple[Tensor, ...] = ()  # what else the coupled half of the loss needs, without gradient
    # Computes the terms of the loss that compare no rows; a first pass that needs only vectors does not call it
    parts: Callable[[], dict[str, Part]] = dict


class CoupledObjective(Objective):
    """An objective that compares the rows of a batch (in-batch negatives), so that a batch cannot simply be cut.

    The two halves of its loss are kept apart, so that training can cache gradients (Gao et al. 2021, GradCache): all
    vectors without a graph, the coupled loss and its gradient by vector, then each micro-batch again with a graph.
    """

    @abstractmethod
    def represent(self, drawn: Any) -> Represented:
        """The half in which every row is by itself."""

    def coupling(self) -> tuple[nn.Parameter, ...]:
        """The parameters that `couple` uses, if it has any of its own."""
        return ()

    @abstractmethod
    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        """The half that compares all rows of all workers; `vectors` and `facts` are those of this worker's rows."""

    def forward(self, drawn: Any) -> Loss:
        """Both halves at once."""
        rows = self.represent(drawn)
        coupled = self.couple(rows.vectors, rows.facts)
        parts = {**rows.parts(), **coupled}
        return Loss({name: parts[name] for name in self.parts if name in parts})


def require_plain_layers(shape: BackboneShape, why: str) -> None:
    """Raises UserError for a backbone whose layers are not BERT's.

    Args:
        why: what the method does with the layers, up to their name.
    """
    if not shape.has_plain_layers:
        raise UserError(
            f"{why} of {shape.family} are not BERT's. Choose a bert, roberta, distilbert or electra backbone."
        )


def require_dropout(shape: BackboneShape, name: str) -> None:
    """Raises UserError for a backbone without dropout, whose two passes of a text are equal. name: the method's."""
    if shape.dropout == 0.0:
        raise UserError(
            f"{name}: backbone.dropout = 0, so both passes of a text are equal and there is nothing to learn; set "
            "backbone.dropout=0.1"
        )


def teacher_width(name: str) -> int:
    """Width of the vectors of an objective's teacher. name: as in `RowForm`.

    Raises:
        UserError: if the teacher is not on this machine, or gives no dense vector.
    """
    return vector_width(model_folder(name, field="objective.teacher"), f"objective.teacher = {name}")


def flat_targets(ids_BL: Tensor, chosen_BL: Tensor) -> tuple[Tensor, Tensor]:
    """The positions where a mask is true, in the flattened batch, and the ids there; int64, [R] each."""
    rows_R = chosen_BL.flatten().nonzero().squeeze(1)
    return rows_R, ids_BL.flatten()[rows_R]


def use_of_vector(vector_BD: Tensor, loss_of: Callable[[Tensor], Part], decoder: str = "decoder") -> dict[str, Tensor]:
    """A decoder's mean loss by target, and the same loss with the batch's mean vector, which contains nothing about the
    single text.

    Args:
        loss_of: the decoder's loss when it is given these vectors. decoder: its name.
    """
    inputs = {
        f"{decoder}_loss": vector_BD,
        f"{decoder}_loss_without_vector": vector_BD.mean(0, True).expand_as(vector_BD),
    }
    parts = {name: loss_of(vectors) for name, vectors in inputs.items()}
    return {name: part.total / part.count.clamp(min=1) for name, part in parts.items()}
