"""What a text costs in training: matrix products, and what is kept for the backward pass.

    term               forward                             backward
    layers             2 x matrices x tokens               twice that
    attention          4 x length x width x tokens         twice that, a layer
    vocabulary head    2 x (width + V) x width x targets   twice that
    column maximum     2 x V x width x positions           4 x V x width x texts: one position wins an entry

The counts are those of the mathematics: that fused attention computes its scores again is part of a device's
utilisation, as are norms, softmaxes and AdamW. Lengths are means, so that of texts of uneven length the products of
attention, about a tenth of all at 512 tokens, are counted somewhat low.

Shapes: T tokens of a text, D width, F inner width of a feed-forward layer, V vocabulary.
"""

from dataclasses import dataclass, fields
from typing import Self

from midmask.estimate.sizes import Sizes


@dataclass(frozen=True)
class Work:
    """What is done with some texts. forward, backward: FLOPs, two for a multiplication with an addition.

    Kept until the backward pass: layer_tokens, tokens times layers (of width D and 4 D); pairs, tokens seen by tokens,
    by head and layer; targets, rows of a fused cross-entropy, of width D; entries, numbers as wide as the vocabulary.
    heads: fused cross-entropies, each of which holds a gradient of the output matrix.
    """

    forward: float = 0.0
    backward: float = 0.0
    layer_tokens: float = 0.0
    pairs: float = 0.0
    targets: float = 0.0
    entries: float = 0.0
    heads: int = 0

    @property
    def flops(self) -> float:
        return self.forward + self.backward

    def __add__(self, other: "Work") -> Self:
        return type(self)(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )

    def times(self, texts: float) -> "Work":
        """The same for so many texts, or batches of them; a head's gradients are there once."""
        scaled = {field.name: texts * getattr(self, field.name) for field in fields(self) if field.name != "heads"}
        return Work(**scaled, heads=self.heads)

    def without_gradient(self) -> "Work":
        return Work(forward=self.forward)


def learnt(forward: float, **kept: float) -> Work:
    """Products in which both factors get a gradient."""
    return Work(forward, 2 * forward, **kept)  # type: ignore[arg-type]


def encoded(sizes: Sizes, tokens: float) -> Work:
    """All last hidden states of a text."""
    attention = 4 * sizes.layers * tokens**2 * sizes.width
    return learnt(
        2 * sizes.matrices * tokens + attention,
        layer_tokens=sizes.layers * tokens,
        pairs=sizes.layers * sizes.heads * tokens**2,
    )


def encoded_first(sizes: Sizes, tokens: float) -> Work:
    """The last hidden state of [CLS] alone: of plain layers, the last one's products for all other tokens are left out
    (`encoders.first_token`)."""
    if not sizes.is_plain:
        return encoded(sizes, tokens)
    before, width = (sizes.layers - 1) / sizes.layers, sizes.width
    last = 4 * sizes.heads * width * tokens + 8 * width**2 + 4 * width * sizes.feed_forward
    whole = encoded(sizes, tokens)
    return learnt(before * whole.forward + last, layer_tokens=before * whole.layer_tokens, pairs=before * whole.pairs)


def decoded(sizes: Sizes, tokens: float, layers: int, *, feed_forward: int | None = None) -> Work:
    """The last states of a decoder whose layers are as wide as the encoder's."""
    inner = feed_forward or sizes.feed_forward
    each = 2 * (4 * sizes.width**2 + 2 * sizes.width * inner) * tokens + 4 * tokens**2 * sizes.width
    return learnt(layers * each, layer_tokens=layers * tokens, pairs=layers * sizes.heads * tokens**2)


def transformed(sizes: Sizes, rows: float) -> Work:
    """The MLM head up to its output matrix."""
    return learnt(2 * sizes.width * sizes.embedding_width * rows, targets=rows)


def predicted(sizes: Sizes, targets: float) -> Work:
    """The MLM head's cross-entropy at so many places."""
    output = learnt(2 * sizes.embedding_width * sizes.vocabulary * targets, targets=targets, heads=1)
    return transformed(sizes, targets) + output


def named(sizes: Sizes, *, transform: bool = True) -> Work:
    """Logits of the whole vocabulary from one vector of a text, which exist all at once."""
    logits = learnt(2 * sizes.embedding_width * sizes.vocabulary, entries=3 * sizes.vocabulary)
    return logits + transformed(sizes, 1) if transform else logits


def column_maximum(sizes: Sizes, tokens: float, *, transform: bool = True) -> Work:
    """Of each word the highest logit over a text's positions."""
    product = 2 * sizes.embedding_width * sizes.vocabulary
    highest = Work(product * tokens, 2 * product, entries=4 * sizes.vocabulary)
    return highest + transformed(sizes, tokens) if transform else highest


def mixed(sizes: Sizes, *, embeddings_learn: bool = True) -> Work:
    """Weights of words times the words' embeddings, one vector a text."""
    forward = 2 * sizes.vocabulary * sizes.width
    return Work(forward, 2 * forward if embeddings_learn else forward, entries=2 * sizes.vocabulary)
