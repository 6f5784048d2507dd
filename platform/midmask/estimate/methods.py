"""The table of methods: what one row of pre-training costs, from the objective's config.

A row is what the objective reads: a passage, two spans of a document, or a passage and a query for it. Lengths are
those of texts with their special tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

from midmask.encoders.backbone import BackboneConfig
from midmask.estimate.sizes import Sizes, encoder_sizes
from midmask.estimate.work import (
    Work,
    column_maximum,
    decoded,
    encoded,
    encoded_first,
    learnt,
    mixed,
    named,
    predicted,
)
from midmask.objectives import ObjectiveConfig
from midmask.objectives.pretraining.bow import BOW
from midmask.objectives.pretraining.cocondenser import CoCondenser
from midmask.objectives.pretraining.condenser import HeadConfig
from midmask.objectives.pretraining.cotmae import CoTMAE
from midmask.objectives.pretraining.cotmae_qc import QueryAsContext
from midmask.objectives.pretraining.cotmae_v2 import CoTMAEv2
from midmask.objectives.pretraining.cotmote import CoTMoTE
from midmask.objectives.pretraining.dupmae import DupMAE
from midmask.objectives.pretraining.encoder_mask import MaskedConfig
from midmask.objectives.pretraining.ict import ICT
from midmask.objectives.pretraining.lexmae import LexMAE
from midmask.objectives.pretraining.mlm_cls_tf import MLMTermFrequency
from midmask.objectives.pretraining.retromae import DecodingConfig, RetroMAE
from midmask.objectives.pretraining.seed import SEED
from midmask.objectives.pretraining.simcse import SimCSE
from midmask.objectives.pretraining.simlm import SimLM


@dataclass(frozen=True)
class Row:
    """An encoder, and the tokens of what it reads: a text, and its second span or pseudo-query (0: it has none)."""

    sizes: Sizes
    tokens: float
    context: float = 0.0


def row_work(config: ObjectiveConfig, row: Row) -> Work:
    """What one row of pre-training costs. An objective without an entry here is taken for a masked LM."""
    method = METHODS.get(config.name)
    if method is not None:
        return method(config, row)
    return masked_lm(config, row) if isinstance(config, MaskedConfig) else encoded(row.sizes, row.tokens)


def masked_lm(config: MaskedConfig, row: Row) -> Work:
    return encoded(row.sizes, row.tokens) + predicted(row.sizes, config.encoder_mask_ratio * row.tokens)


def _mlm_cls_tf(config: MLMTermFrequency.Config, row: Row) -> Work:
    return masked_lm(config, row) + named(row.sizes, transform=config.tf_head == "tied")


def _bow(config: BOW.Config, row: Row) -> Work:
    return masked_lm(config, row) + named(row.sizes)


def _rebuilt(config: DecodingConfig, row: Row) -> Work:
    """RetroMAE's decoder: every token is a target if each has a view of its own, else those that are hidden."""
    share = 1.0 if config.decoding == "enhanced" else config.decoder_mask_ratio
    states = decoded(row.sizes, row.tokens, config.decoder_layers)
    return states + predicted(row.sizes, share * (row.tokens - 2))


def _retromae(config: RetroMAE.Config, row: Row) -> Work:
    return masked_lm(config, row) + _rebuilt(config, row)


def _dupmae(config: DupMAE.Config, row: Row) -> Work:
    work = masked_lm(config, row)
    if config.decode != "ot":
        work += _rebuilt(config, row)
    if config.decode != "cls":
        work += column_maximum(row.sizes, row.tokens, transform=config.bow_head == "tied")
    return work


def _condenser(config: HeadConfig, row: Row) -> Work:
    head = decoded(row.sizes, row.tokens, config.head_layers)
    return masked_lm(config, row) + head + predicted(row.sizes, config.encoder_mask_ratio * row.tokens)


def _cocondenser(config: CoCondenser.Config, row: Row) -> Work:
    return _spans(row, lambda span: _condenser(config, span))


def _spans(row: Row, work: Callable[[Row], Work]) -> Work:
    """Both spans of a document, each of which is the other's context."""
    first = work(row)
    second = work(Row(row.sizes, row.context, row.tokens))
    both = first + second
    return Work(**{**vars(both), "heads": first.heads})


def _cotmae(config: CoTMAE.Config, row: Row) -> Work:
    def span(own: Row) -> Work:
        states = decoded(own.sizes, own.context, config.decoder_layers)
        return masked_lm(config, own) + states + predicted(own.sizes, config.decoder_mask_ratio * own.context)

    return _spans(row, span)


def _written(row: Row, tokens: float, layers: int) -> Work:
    """A causal decoder that predicts each next token; its feed-forward layers are GPT-2's, four times as wide."""
    states = decoded(row.sizes, tokens, layers, feed_forward=4 * row.sizes.width)
    return states + predicted(row.sizes, tokens - 1)


def _cotmae_qc(config: QueryAsContext.Config, row: Row) -> Work:
    return masked_lm(config, row) + _written(row, row.context, config.decoder_layers)


def _cotmae_v2(config: CoTMAEv2.Config, row: Row) -> Work:
    def text(own: Row) -> Work:
        views = column_maximum(own.sizes, own.tokens) + mixed(own.sizes)
        ae = decoded(own.sizes, own.context + 1, config.ae_layers)
        ae += predicted(own.sizes, config.decoder_mask_ratio * own.context)
        return masked_lm(config, own) + views + ae + _written(own, own.context + 1, config.ar_layers)

    return text(row) if config.context == "pseudo_query" else _spans(row, text)


def _cotmote(config: CoTMoTE.Config, row: Row) -> Work:
    together = config.views == "both" and config.decoding == "together"
    times = 2 if config.views == "both" and not together else 1

    def side(own: Row) -> Work:
        work = masked_lm(config, own)
        if not own.context:
            return work
        if config.views != "dense":
            work += column_maximum(own.sizes, own.tokens, transform=config.logits == "head") + mixed(own.sizes)
        for _ in range(times):
            work += _written(own, own.context + together, config.decoder_layers)
        return work

    behind_query = {"query": row.context, "passage": row.tokens, "nothing": 0.0}[config.query_decodes]
    return side(row) + side(Row(row.sizes, row.context, behind_query))


def _simlm(config: SimLM.Config, row: Row) -> Work:
    generator = encoder_sizes(BackboneConfig(name=config.generator), row.sizes.vocabulary)
    guesses = (config.encoder_mask_ratio + config.decoder_mask_ratio) * row.tokens
    drawn = encoded(generator, row.tokens).times(2) + predicted(generator, guesses)
    learns = Row(generator, row.tokens)
    both = encoded(row.sizes, row.tokens) + decoded(row.sizes, row.tokens, config.decoder_layers)
    both += predicted(row.sizes, row.tokens - 2) + predicted(row.sizes, row.tokens - 2)
    work = drawn.without_gradient() + both
    return work if config.places() else work + masked_lm(config, learns)


def _seed(config: SEED.Config, row: Row) -> Work:
    return masked_lm(config, row) + _written(row, row.tokens, config.decoder_layers)


def _simcse(config: SimCSE.Config, row: Row) -> Work:
    work = encoded_first(row.sizes, row.tokens).times(2)
    if config.projection:
        work += learnt(4 * row.sizes.width**2)
    return work + masked_lm(config, row) if config.mlm_weight else work


def _ict(config: ICT.Config, row: Row) -> Work:
    """Two pieces of a passage, each padded to the longest in the batch: some runs have the greatest share of words, and
    some passages keep all of theirs."""
    pieces = [config.longest, 1.0 if config.remove < 1 else 1 - config.shortest]
    if config.views == "crops":
        pieces = 2 * [config.longest * (1 - config.delete)]
    first, second = (encoded_first(row.sizes, 2 + piece * (row.tokens - 2)) for piece in pieces)
    return first + second


def _lexmae(config: LexMAE.Config, row: Row) -> Work:
    """Its decoder has a head of its own before the shared output matrix; the mixture teaches the embeddings nothing."""
    work = masked_lm(config, row)
    if config.bottleneck in ("softmax", "saturated"):
        work += column_maximum(row.sizes, row.tokens) + mixed(row.sizes, embeddings_learn=False)
    states = decoded(row.sizes, row.tokens, config.decoder_layers)
    return work + states + predicted(row.sizes, config.decoder_mask_ratio * row.tokens)


METHODS: dict[str, Callable[..., Work]] = {
    "mlm": masked_lm,
    "rom": masked_lm,
    "mlm_cls_tf": _mlm_cls_tf,
    "bow": _bow,
    "retromae": _retromae,
    "dupmae": _dupmae,
    "condenser": _condenser,
    "cocondenser": _cocondenser,
    "cotmae": _cotmae,
    "cotmae_qc": _cotmae_qc,
    "cotmae_v2": _cotmae_v2,
    "cotmote": _cotmote,
    "simlm": _simlm,
    "seed": _seed,
    "simcse": _simcse,
    "ict": _ict,
    "lexmae": _lexmae,
}
