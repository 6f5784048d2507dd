"""A generator, as ELECTRA has one: a small masked LM whose guesses replace tokens. Shared by SimLM and DiffCSE.

It is a model that was trained before, by its folder, and stays as it is; or a fresh one that is trained beside the
encoder. It guesses without dropout, so that a guess is a function of the row's key alone.

Shapes: B rows, L tokens, R hidden places, D width, V vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import torch
from pydantic import Field
from torch import Tensor, nn

from midmask.core.batch import Part, TokenRows
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, shape_of
from midmask.encoders.families import BackboneShape
from midmask.encoders.reading import SIZES
from midmask.errors import UserError
from midmask.masking.randomness import Purpose, uniform
from midmask.objectives.objective import ObjectiveConfig, flat_targets
from midmask.objectives.pretraining.encoder_mask import MaskedRows, masked_lm_part
from midmask.text.vocabulary import Vocabulary

GUESSES_AT_ONCE = {"cpu": 2**22, "cuda": 2**27}
"""Logits of the generator that are held at a time."""


class TokenGeneratorConfig(ObjectiveConfig):
    """Fields of methods with a generator."""

    generator: str = Field(
        "tiny",
        description="tiny, mini, small or base: fresh weights, trained beside the encoder and dropped; or a "
        "Hugging Face masked LM with the same vocabulary, by folder or hub id: frozen",
    )
    generator_weight: float = Field(0.2, ge=0.0, description="factor of the loss of a generator that is trained")

    def places(self) -> tuple[str, ...]:
        return () if self.generator in SIZES else (self.generator,)

    def check(self, shape: BackboneShape) -> None:
        with _name_generator():
            shape_of(BackboneConfig(name=self.generator))


class Frozen(nn.Module):
    """Holds a model that is never trained. It follows its owner to devices and types, and is no part of the state."""

    def __init__(self, model: Backbone) -> None:
        super().__init__()
        self._held = (model.requires_grad_(False).eval(),)  # in a tuple, where no state looks

    @property
    def model(self) -> Backbone:
        return self._held[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.model._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def build_generator(name: str, vocabulary: Vocabulary) -> Backbone | Frozen:
    """The generator that a config names: a fresh model, or a frozen one from a folder.

    Raises:
        UserError: if the folder holds no masked LM of a supported family with this vocabulary.
    """
    seed = int(torch.randint(2**31, (), device="cpu"))
    with _name_generator():
        made = build_backbone(BackboneConfig(name=name, dropout=0.0), vocabulary, seed=seed)
    return made if name in SIZES else Frozen(made)


@contextmanager
def _name_generator() -> Iterator[None]:
    """Errors about a backbone name the generator's field, because a generator is built as one."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace("backbone.name", "objective.generator")) from None


@torch.no_grad()
def fill(
    generator: Backbone | Frozen, text: TokenRows, places_BL: Tensor, size: int, *, likeliest: bool = False
) -> Tensor:
    """The ids of a text with the generator's guesses at some places; int64, [B, L].

    Args:
        text: as the generator reads it, hidden tokens masked; what is drawn depends on its keys.
        places_BL: bool, the places to fill. size: entries of the vocabulary that may be guessed.
        likeliest: take the likeliest token of each place, instead of one drawn from the softmax.
    """
    model = generator.model if isinstance(generator, Frozen) else generator
    rows_R, _ = flat_targets(text.ids_BL, places_BL)
    states_RD = model.hidden(text.ids_BL, text.lengths_B).flatten(0, 1)[rows_R]
    chance_R = None if likeliest else uniform(text.keys_B, Purpose.GUESS, text.ids_BL.shape[1]).flatten()[rows_R]
    guesses_R = guess(model, states_RD, chance_R, size)
    return text.ids_BL.flatten().index_copy(0, rows_R, guesses_R).view_as(text.ids_BL)


def guess(model: Backbone, states_RD: Tensor, chance_R: Tensor | None, size: int) -> Tensor:
    """A token for each state, by the softmax of a masked LM over its first `size` entries; int64, [R].

    Logits exist for a chunk of states.

    Args:
        chance_R: numbers in [0, 1): the token in whose share of [0, 1) the number falls; none: the likeliest token.
    """
    weight_VD, bias_V = model.output_weight_VD[:size], model.output_bias_V[:size]
    step = max(1, GUESSES_AT_ONCE[states_RD.device.type] // size)
    guesses_R = torch.empty(len(states_RD), dtype=torch.int64, device=states_RD.device)
    for at in range(0, len(states_RD), step):
        part = slice(at, at + step)
        logits_CV = model.transform(states_RD[part]) @ weight_VD.t() + bias_V
        if chance_R is None:
            guesses_R[part] = logits_CV.argmax(1)
            continue
        shares_CV = logits_CV.double().softmax(1).cumsum(1)
        falls_C1 = chance_R[part, None].double() * shares_CV[:, -1:]
        guesses_R[part] = torch.searchsorted(shares_CV, falls_C1, right=True).clamp(max=size - 1).squeeze(1)
    return guesses_R


def generator_count(generator: Backbone | Frozen, rows: MaskedRows) -> Tensor:
    """How many targets the generator learns from, int64, []; none if it is frozen."""
    return torch.zeros_like(rows.count) if isinstance(generator, Frozen) else rows.count


def generator_part(generator: Backbone | Frozen, rows: MaskedRows, *, weight: float) -> Part:
    """The masked-LM loss of the generator; zero if it is frozen."""
    if isinstance(generator, Frozen):
        return Part(torch.zeros((), device=rows.ids_BL.device), generator_count(generator, rows))
    return masked_lm_part(generator, generator.hidden(rows.ids_BL, rows.lengths_B), rows, weight=weight)
