"""Two pieces of a passage must find each other: the inverse cloze task (ICT; Lee, Chang & Toutanova, ACL 2019), or two
crops (Contriever; Izacard et al., TMLR 2022).

loss      sum over passages of -log( exp(s(q, p)) / sum over the pieces p of all workers of exp(s(q, .)) ), s the dot
          product over `temperature`, or the cosine over it with `normalise`
views     "cloze": q is a run of words, p the passage, without that run in 0.9 of the passages; "crops": q and p are two
          independent runs of words, each without 0.1 of its tokens. A run has 5 to 50% of the words, uniformly
vector    h, the last hidden state of [CLS]; one encoder for both
thrown    nothing; the MLM head stays untrained
beware    where texts are cut to one length, that of a run tells that of the rest, and a small model learns this first
differs   Lee et al.: q is a sentence of a block of sentences, with two encoders and projections to 128 columns.
          Contriever (its setting: views=crops, temperature=0.05): pieces of 256 tokens, cut without regard to words;
          mean pooling; negatives from a queue and a momentum encoder, here in-batch as in its ablation. Gradients reach
          the rows of all workers
unpublished   for "cloze", the share of words in a run of a text without marked sentences
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.masking.corruption import only, word_runs
from midmask.masking.randomness import Purpose, rekey, uniform
from midmask.objectives.in_batch import pairs_part
from midmask.objectives.objective import CoupledObjective, ObjectiveConfig, Represented
from midmask.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class PieceRows:
    """Two pieces of each passage."""

    query: TokenRows
    passage: TokenRows


class ClozeConfig(ObjectiveConfig):
    """Fields of methods that cut a run of words from a passage."""

    shortest: float = Field(0.05, gt=0.0, le=1.0, description="least share of the words in a run")
    longest: float = Field(0.5, gt=0.0, le=1.0, description="greatest share of the words in a run")
    remove: float = Field(0.9, ge=0.0, le=1.0, description="cloze: chance that the run is cut from the passage")

    @model_validator(mode="after")
    def _shares_are_in_order(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"shortest = {self.shortest} is more than longest = {self.longest}; swap them")
        return self

    def run(self, text: TokenRows, vocabulary: Vocabulary) -> Tensor:
        """The run of words of each row; bool, [B, L]."""
        return word_runs(text, vocabulary, shortest=self.shortest, longest=self.longest)

    def pieces(self, text: TokenRows, vocabulary: Vocabulary) -> PieceRows:
        """The run, and the passage, mostly without it."""
        run_BL = self.run(text, vocabulary)
        cut_B1 = uniform(text.keys_B, Purpose.CLOZE, 1) < self.remove
        return PieceRows(only(text, run_BL, vocabulary), only(text, ~(run_BL & cut_B1), vocabulary))


class ICT(CoupledObjective):
    class Config(ClozeConfig):
        """Inverse cloze task and random crops."""

        contrastive: ClassVar[bool] = True
        name: Literal["ict"] = Field("ict", description="name of the objective")
        views: Literal["cloze", "crops"] = Field("cloze", description="a run of words and the rest, or two runs")
        delete: float = Field(0.1, ge=0.0, lt=1.0, description="crops: chance of each token to be left out")
        temperature: float = Field(1.0, gt=0.0, le=100.0, description="divisor of the scores")
        normalise: bool = Field(False, description="score by cosine instead of the dot product")

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("contrastive",)

    def draw(self, batch: Batch) -> PieceRows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        if self.config.views == "crops":
            return PieceRows(self._crop(text, vocabulary), self._crop(rekey(text), vocabulary))
        return self.config.pieces(text, vocabulary)

    def _crop(self, text: TokenRows, vocabulary: Vocabulary) -> TokenRows:
        stays_BL = uniform(text.keys_B, Purpose.DELETE, text.ids_BL.shape[1]) >= self.config.delete
        return only(text, self.config.run(text, vocabulary) & stays_BL, vocabulary)

    def counts(self, drawn: PieceRows) -> dict[str, Tensor]:
        return {"contrastive": torch.tensor(len(drawn.query.lengths_B), device=drawn.query.lengths_B.device)}

    def represent(self, drawn: PieceRows) -> Represented:
        return Represented((self._vectors(drawn.query), self._vectors(drawn.passage)))

    def _vectors(self, text: TokenRows) -> Tensor:
        return self.backbone.sentence_vectors(text.ids_BL, text.lengths_B, normalise=self.config.normalise)

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        return {"contrastive": pairs_part(*vectors, temperature=self.config.temperature)}
