"""Experts: queries and passages share an encoder, but each have some of its weights to themselves.

The Hugging Face model's own weights are the passage expert, so its folder stays what it was for other libraries; the
query expert is a second set of the weights that differ, in `experts.safetensors` beside it. Which text goes through
which is a matter of its side, not of a gate (CoT-MoTE, Ma et al. 2023, "hard routing").

    ffn   both linear layers of every feed-forward layer; attention, embeddings and, by default, norms are shared
    all   every weight of the encoder, embeddings included: two encoders
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

from midmask.encoders.families import Family
from midmask.encoders.reading import library_reading, refuse_not_finite
from midmask.errors import UserError

FILE = "experts.safetensors"

ExpertKind = Literal["ffn", "all"]


@dataclass(frozen=True)
class ExpertSplit:
    """Which weights are each side's own. norms: with `ffn`, also the norm of every feed-forward layer."""

    kind: ExpertKind
    norms: bool = False

    def __str__(self) -> str:
        return f"experts = {self.kind}, expert_norms = {str(self.norms).lower()}"

    def names(self, encoder: nn.Module, family: Family) -> list[str]:
        """Names of those weights in an encoder; none if the family's feed-forward layers are not known."""
        names = [name for name, _ in encoder.named_parameters()]
        if self.kind == "all":
            return names
        patterns = [family.feed_forward_weights, *([family.feed_forward_norms] if self.norms else [])]
        return [name for name in names if any(re.search(pattern, name) for pattern in patterns)]


class QueryExpert(nn.Module):
    """The weights of an encoder that queries have for themselves, by the encoder's names. They begin as its own."""

    def __init__(self, split: ExpertSplit, encoder: nn.Module, family: Family) -> None:
        super().__init__()
        self.split = split
        parameters = dict(encoder.named_parameters())
        names = split.names(encoder, family)
        if not names:
            raise UserError(
                f"backbone.experts = {split.kind}: the feed-forward layers of {type(encoder).__name__} are not known "
                "here. Use backbone.experts=all or none."
            )
        weights = {name.replace(".", "/"): nn.Parameter(parameters[name].detach().clone()) for name in names}
        self.weights = nn.ParameterDict(weights)  # torch allows no dots in their names

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """The encoder's name of each weight, and the query's value."""
        for key, weight in self.weights.items():
            yield key.replace("/", "."), weight

    def run(self, encoder: nn.Module, inputs: dict[str, Any]) -> Any:
        """Runs the encoder with these weights in place of its own; gradients reach these weights."""
        return torch.func.functional_call(encoder, dict(self.named()), kwargs=inputs)

    def save(self, folder: Path) -> None:
        """Writes `experts.safetensors`: the weights by the encoder's names; the split in its metadata."""
        tensors = {name: weight.detach().cpu().contiguous() for name, weight in self.named()}
        about = {"kind": self.split.kind, "norms": str(self.split.norms).lower()}
        safetensors.torch.save_file(tensors, folder / FILE, about)

    def load(self, folder: Path) -> None:
        """Loads the weights from the file that `save` wrote.

        Raises:
            UserError: if the file is damaged, or its weights are not those of this encoder, or not finite.
        """
        with library_reading(folder / FILE, "experts"):
            saved = safetensors.torch.load_file(folder / FILE)
        refuse_not_finite(folder / FILE, saved.items())
        current = dict(self.named())
        wrong = saved.keys() ^ current.keys() or {
            name for name, weight in current.items() if weight.shape != saved[name].shape
        }
        if wrong:
            raise UserError(f"{folder / FILE}: {min(wrong)} does not fit the encoder beside it ({len(wrong)} weights)")
        with torch.no_grad():
            for name, weight in current.items():
                weight.copy_(saved[name])


def read_expert_split(folder: Path) -> ExpertSplit | None:
    """How the encoder in a folder is split into experts; none if it is not.

    Raises:
        UserError: if the file cannot be read.
    """
    if not (folder / FILE).is_file():
        return None
    with library_reading(folder / FILE, "experts"):
        with safe_open(folder / FILE, "pt") as file:
            about = file.metadata() or {}
        kind: ExpertKind = "all" if about["kind"] == "all" else "ffn"
        return ExpertSplit(kind, about["norms"] == "true")


def put_query_expert(encoder: nn.Module, folder: Path) -> None:
    """Gives an encoder that was loaded from a folder the query's weights for good, if the folder has experts."""
    if read_expert_split(folder) is not None:
        encoder.load_state_dict(safetensors.torch.load_file(folder / FILE), strict=False)
