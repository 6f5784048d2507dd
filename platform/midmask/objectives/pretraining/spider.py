"""Recurring span retrieval (Spider; Ram et al., NAACL 2022): a passage must be found by a short query that is cut from
another passage of its document, around words that both passages have.

loss      sum over examples of -log( exp(q · p / t) / sum over the passages of all workers of exp(q · . / t) ), t = 1
example   two spans of a document that share a phrase (the paper's recurring span) of 2 to 10 whole words, drawn anew at
          each visit. A phrase neither begins nor ends with a stop-word, has no [UNK], and is in no longer phrase that
          both spans have; of several, one is drawn. q is a window of 5 to 30 tokens of one span, around the phrase, or
          around its place if it is removed, which has a chance of 0.5; p is the other span, whole
masked    nothing
vector    h, the last hidden state of [CLS]; one encoder for both
thrown    nothing; the MLM head stays untrained
beware    `spans.recurring=true` is needed: it notes which spans share a phrase of 2 to 10 words. Two spans without a
          phrase of the config's sizes make no query. Passages alone are short documents: `spans.documents=titles`
          joins those of one title
differs   negatives are in-batch only: published is one more for each query, a passage of the document without the
          phrase; a row of two spans has no third. Published passages have 100 words and begin with their title.
          Published examples are drawn evenly from the phrases of all documents; here a document is drawn once an epoch,
          then two of its spans, then a phrase. Published words are spaCy's, compared in lower case, and a phrase has no
          punctuation; here words are compared by their tokens, and punctuation may stand within a phrase. Published, a
          phrase within longer ones is a phrase too if it also occurs elsewhere in the document; a window may lie beside
          a phrase that it keeps; and the setting of 10 words lets phrases have 9
unpublished   nothing: code and command are there
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.masking.corruption import only
from midmask.masking.randomness import Purpose, uniform
from midmask.masking.words import LEAST_WORDS, MOST_WORDS, recurring
from midmask.objectives import distributed as world
from midmask.objectives.objective import CoupledObjective, ObjectiveConfig, Represented, RowForm
from midmask.text.vocabulary import Vocabulary

NO_TARGET = -100
"""What cross-entropy leaves out."""


@dataclass(frozen=True)
class ExampleRows:
    """A query and a passage in each row, and which rows are examples; bool, [B]."""

    query: TokenRows
    passage: TokenRows
    examples_B: Tensor


class Spider(CoupledObjective):
    class Config(ObjectiveConfig):
        """Recurring span retrieval; the defaults are the paper's."""

        contrastive: ClassVar[bool] = True
        name: Literal["spider"] = Field("spider", description="name of the objective")
        shortest_phrase: int = Field(LEAST_WORDS, ge=1, le=64, description="fewest words of a phrase")
        longest_phrase: int = Field(MOST_WORDS, ge=1, le=64, description="most words of a phrase")
        shortest_window: int = Field(5, ge=1, le=8192, description="fewest tokens of a query")
        longest_window: int = Field(30, ge=1, le=8192, description="most tokens of a query")
        remove: float = Field(0.5, ge=0.0, le=1.0, description="chance that a query lacks the phrase")
        temperature: float = Field(1.0, gt=0.0, le=100.0, description="divisor of the scores")

        def row_form(self) -> RowForm:
            return RowForm(rows="spans", context="recurring")

        @model_validator(mode="after")
        def _sizes_are_in_order(self) -> Self:
            for kind in ("phrase", "window"):
                low, high = (getattr(self, f"{end}_{kind}") for end in ("shortest", "longest"))
                if low > high:
                    raise ValueError(f"shortest_{kind} = {low} is more than longest_{kind} = {high}; swap them")
            return self

    config: Config
    parts: ClassVar[tuple[str, ...]] = ("contrastive",)

    def draw(self, batch: Batch) -> ExampleRows:
        query, passage = batch.texts["context"], batch.texts["passage"]
        vocabulary, config = self.vocabulary(passage.ids_BL.device), self.config
        ends_BL = recurring(query, passage, vocabulary, config.shortest_phrase, config.longest_phrase)
        chance_BL = uniform(query.keys_B, Purpose.PICK, ends_BL.shape[1])
        first_B = torch.where(ends_BL > 0, chance_BL, -1.0).argmax(1)
        end_B = ends_BL.gather(1, first_B[:, None])[:, 0]
        examples_B = end_B > 0
        # Where no phrase recurs, an empty one stands anywhere: the query is as long as others, and is not used.
        first_B = torch.where(examples_B, first_B, 1 + (chance_BL[:, 0] * (query.lengths_B - 1)).long())
        return ExampleRows(self._window(query, first_B, end_B.maximum(first_B), vocabulary), passage, examples_B)

    def _window(self, text: TokenRows, first_B: Tensor, end_B: Tensor, vocabulary: Vocabulary) -> TokenRows:
        """The tokens around the phrase from `first_B` to before `end_B`, which stays in if there is nothing else."""
        places_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
        phrase_BL = (places_L >= first_B[:, None]) & (places_L < end_B[:, None])
        removed_B = uniform(text.keys_B, Purpose.CLOZE, 1)[:, 0] < self.config.remove
        removed_B &= end_B - first_B < text.lengths_B - 2
        text = only(text, ~(phrase_BL & removed_B[:, None]), vocabulary)
        share_B, place_B = uniform(text.keys_B, Purpose.CROP, 2).double().unbind(1)
        shortest, longest = self.config.shortest_window, self.config.longest_window
        inside_B = torch.where(removed_B, 0, end_B - first_B)
        room_B = text.lengths_B - 2
        size_B = (shortest + (share_B * (longest - shortest + 1)).long()).maximum(inside_B).minimum(room_B)
        low_B = (first_B + inside_B - size_B).clamp(min=1)
        high_B = first_B.minimum(1 + room_B - size_B)
        start_B = low_B + (place_B * (high_B - low_B + 1)).long()
        places_L = places_L[: text.ids_BL.shape[1]]
        return only(text, (places_L >= start_B[:, None]) & (places_L < (start_B + size_B)[:, None]), vocabulary)

    def counts(self, drawn: ExampleRows) -> dict[str, Tensor]:
        return {"contrastive": drawn.examples_B.sum()}

    def represent(self, drawn: ExampleRows) -> Represented:
        vectors = tuple(
            self.backbone.sentence_vectors(text.ids_BL, text.lengths_B) for text in (drawn.query, drawn.passage)
        )
        return Represented(vectors, (drawn.examples_B,))

    def couple(self, vectors: tuple[Tensor, ...], facts: tuple[Tensor, ...]) -> dict[str, Part]:
        query_BD, passage_BD = vectors
        (examples_B,) = facts
        passage_ND = world.gather_rows(passage_BD)
        targets_B = torch.where(examples_B, world.local_positions(passage_BD), NO_TARGET)
        with torch.autocast(query_BD.device.type, enabled=False):
            scores_BN = query_BD @ passage_ND.t() / self.config.temperature
        total = F.cross_entropy(scores_BN, targets_B, ignore_index=NO_TARGET, reduction="sum")
        return {"contrastive": Part(total, examples_B.sum())}
