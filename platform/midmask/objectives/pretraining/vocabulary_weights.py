"""Texts as weights over the vocabulary: bags of words as targets, and SPLADE's weights as a decoder's input.

bag           which tokens a text holds and how often, and losses of vocabulary logits on them. No tensor of targets
              over the vocabulary is made: a bag is a text's own row of ids, each with its count at one place
sparse view   s = max over positions of log(1 + relu(logits)) (SPLADE, Formal et al. 2021); its projection is s times
              the matrix of word embeddings. Nothing is detached

Shapes: B rows, L tokens, D width, V vocabulary.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.heads import linear_column_max
from midmask.encoders.representation import highest_logits
from midmask.masking.words import find_words
from midmask.objectives.objective import Objective
from midmask.objectives.pretraining.encoder_mask import MaskedRows, mask_for_encoder, masked_lm_part
from midmask.text.vocabulary import Vocabulary

WINNERS = 10
"""Highest entries of each text that `winning_vocabulary` looks at."""

TargetWeights = Literal["share", "set", "sum"]
"""What a distinct token weighs: 1 / tokens of the text, repeated ones included; 1 / distinct tokens; or 1."""


@dataclass(frozen=True)
class Bag:
    """The distinct tokens of each text and how often they occur; int64."""

    ids_BL: Tensor  # the tokens of a text in ascending order
    counts_BL: Tensor  # how often a token occurs, at one position of each distinct token; 0 at all other positions

    @property
    def present_BL(self) -> Tensor:
        """True at one position of each distinct token."""
        return self.counts_BL > 0

    @property
    def count(self) -> Tensor:
        """Number of texts with at least one token, int64, []."""
        return self.present_BL.any(1).sum()

    def weights(self, kind: TargetWeights, dtype: torch.dtype) -> Tensor:
        """The target weight of each distinct token at one of its positions, 0 elsewhere; [B, L]."""
        present_BL = self.present_BL.to(dtype)
        if kind == "sum":
            return present_BL
        counted_BL = self.counts_BL if kind == "share" else self.present_BL
        return present_BL / counted_BL.sum(1, keepdim=True).clamp(min=1)


def bag_of_words(text: TokenRows, vocabulary: Vocabulary, *, unknown: bool = True) -> Bag:
    """The true tokens of each text but the specials; `unknown`: whether [UNK] is one of them."""
    counted_BL = find_words(text, vocabulary).candidate_BL
    if not unknown and vocabulary.unk_id is not None:
        counted_BL = counted_BL & (text.ids_BL != vocabulary.unk_id)
    ids_BL, order_BL = text.ids_BL.masked_fill(~counted_BL, vocabulary.size).sort(1)
    real_BL = counted_BL.gather(1, order_BL)
    first_BL = F.pad(ids_BL[:, :-1], (1, 0), value=-1) != ids_BL
    run_BL = first_BL.cumsum(1) - 1
    counts_BL = torch.zeros_like(ids_BL).scatter_add_(1, run_BL, real_BL.long()).gather(1, run_BL)
    return Bag(ids_BL.masked_fill(~real_BL, 0), counts_BL.masked_fill(~first_BL, 0))


def vocabulary_logits(features_BD: Tensor, weight_VD: Tensor, bias_V: Tensor) -> Tensor:
    """weight · features + bias for one vector a text; [B, V], float32 at least."""
    logits_BV = F.linear(features_BD, weight_VD, bias_V)
    return logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))


def bag_cross_entropy(logits_BV: Tensor, ids_BL: Tensor, weights_BL: Tensor) -> Tensor:
    """The sum over rows and places of -weight * log softmax(logits)[id]; shape []."""
    log_sums_B = torch.logsumexp(logits_BV, 1)
    return (weights_BL * (log_sums_B[:, None] - logits_BV.gather(1, ids_BL))).sum()


@dataclass(frozen=True)
class BagRows:
    """The inputs and targets of one batch of a method whose sentence vector names the words of the text."""

    encoder: MaskedRows  # the masked text
    bag: Bag  # the true tokens
    progress: float  # fraction of the run that is done, in [0, 1)


class NamedWords(Objective):
    """Encoder MLM, and a loss of the MLM head's logits at the sentence vector against the text's tokens. Subclasses,
    which are final, name both in `parts`, in this order."""

    names_unknown: ClassVar[bool] = True  # whether [UNK] is one of those tokens

    def draw(self, batch: Batch) -> BagRows:
        text = batch.texts["passage"]
        vocabulary = self.vocabulary(text.ids_BL.device)
        bag = bag_of_words(text, vocabulary, unknown=self.names_unknown)
        return BagRows(mask_for_encoder(text, vocabulary, self.config), bag, batch.progress)

    def counts(self, drawn: BagRows) -> dict[str, Tensor]:
        return dict(zip(self.parts, (drawn.encoder.count, drawn.bag.count), strict=True))

    def forward(self, drawn: BagRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
        features_BD = self.backbone.transform(self.backbone.sentence_vector(hidden_BLD, drawn.encoder.lengths_B))
        logits_BV = vocabulary_logits(features_BD, self.backbone.output_weight_VD, self.backbone.output_bias_V)
        bag = self.bag_part(logits_BV, drawn)
        return Loss(dict(zip(self.parts, (masked_lm_part(self.backbone, hidden_BLD, drawn.encoder), bag), strict=True)))

    @abstractmethod
    def bag_part(self, logits_BV: Tensor, drawn: BagRows) -> Part:
        """The loss of the vocabulary's logits of each text."""


def winning_vocabulary(pooled_BV: Tensor) -> Tensor:
    """How different the 10 highest entries of different texts are: 1 if no two texts share one, 0 if all share all.

    (distinct entries - 10) / (10 * (rows - 1)); 1 for a single row. Shape [].
    """
    best = pooled_BV.topk(min(WINNERS, pooled_BV.shape[1]), 1).indices
    rows, each = best.shape
    most = each * (rows - 1)
    distinct = len(set(best.flatten().tolist()))
    return pooled_BV.new_tensor((distinct - each) / most if most else 1.0)


def sparse_weights(
    backbone: Backbone, hidden_BLD: Tensor, lengths_B: Tensor, *, logits: Literal["head", "embeddings"] = "head"
) -> Tensor:
    """s, [B, V], float32 at least. The maximum comes before log(1 + relu), which keeps the order.

    Args:
        logits: those of the MLM head, or the products of the hidden states themselves with the word embeddings.
    """
    real_BL = torch.arange(hidden_BLD.shape[1], device=lengths_B.device) < lengths_B[:, None]
    if logits == "head":
        highest_BV = highest_logits(backbone, hidden_BLD, real_BL)
    else:
        highest_BV = linear_column_max(hidden_BLD, backbone.word_embeddings_VD, backbone.no_bias_V, real_BL)
    return torch.log1p(torch.relu(highest_BV))


def project(backbone: Backbone, sparse_BV: Tensor) -> Tensor:
    """s times the word embeddings: a vector as wide as the hidden states, [B, D]."""
    return sparse_BV.to(backbone.word_embeddings_VD.dtype) @ backbone.word_embeddings_VD
