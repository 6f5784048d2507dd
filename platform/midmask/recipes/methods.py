"""The methods of the literature, a line each: what their recipes change of a common base, and their published sizes.

Plain data, imported without torch, so that a misspelt name is answered at once. `midmask.recipes` makes configs of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MSMARCO = 8_841_823
"""Passages of MS MARCO: what published epochs of middle training are counted in."""

FINETUNING = {
    "train": {"steps": 150, "batch_size": 32, "learning_rate": 1e-3, "warmup": 0.1, "decay": 0.9},
}
"""The base's one stage: in-batch negatives, minutes long on two CPU cores."""

BASE: dict[str, Any] = {
    "tokens": {"vocabulary_size": 2048, "max_length": 48, "query_length": 24},
    "spans": {"span_length": 48},
    "backbone": {"name": "tiny", "dropout": 0.0},
    "objective": None,
    "pretrain": {"steps": 800, "batch_size": 32, "learning_rate": 1e-3, "warmup": 0.1, "decay": 0.2},
    "stages": [FINETUNING],
}
"""Fine-tuning alone: a dense [CLS] bi-encoder. Sizes are those of a tiny model on two CPU cores; published ones come
with `--scale published`. No dropout: with 0.1, so small a model does not learn to rank at all within so few steps.
Spans, for methods that read them, are as long as passages.
"""


@dataclass(frozen=True)
class Method:
    """A method of the literature, as its differences from the common base."""

    objective: str | None = None  # name of the middle training, with its defaults
    settings: Mapping[str, Any] = field(default_factory=dict)  # fields of the objective that are not its defaults
    changes: Mapping[str, Any] = field(default_factory=dict)  # section of the recipe -> fields unlike the base's
    protocol: str | None = None  # the fine-tuning of the method's paper, where it is not the base's
    # Sizes of its middle training on MS MARCO, dotted path -> value; empty if they are not known
    published: Mapping[str, Any] = field(default_factory=dict)


def training_sizes(steps: float, batch: int, rate: float, *, warmup: float = 0.1) -> dict[str, Any]:
    """Published sizes of a middle training, with linear decay after the warm-up."""
    return {
        "pretrain.steps": round(steps),
        "pretrain.batch_size": batch,
        "pretrain.learning_rate": rate,
        "pretrain.warmup": warmup,
        "pretrain.decay": 1 - warmup,
    }


# Sizes as the papers print them. Batches that a paper does not state (MLM, ROM, SEED, SimLM, CoT-MAE v2) are those of
# the nearest relative.
_MLM = training_sizes(8 * MSMARCO / 256, 256, 5e-5, warmup=0.0)
_RETROMAE = training_sizes(20 * MSMARCO / 1024, 1024, 1e-4)
_CONDENSER = training_sizes(120_000, 2048, 1e-4)
_COTMOTE = training_sizes(80_000, 2048, 3e-4)
_TITLES = {"pseudo_queries": {"source": "titles"}}
_MINED = {"negatives": ["mined"], "per_query": 4, "mine": {"depth": 100, "min_rank": 2, "per_query": 30}}


def _cotmote(experts: str, **settings: Any) -> Method:
    return Method("cotmote", settings, {"backbone": {"experts": experts}}, "cotmote", _COTMOTE)


METHODS: dict[str, Method] = {
    # The two floors. `scratch` takes only the shape of a pre-trained backbone; for the named sizes it equals `none`.
    "none": Method(),
    "scratch": Method(changes={"backbone": {"fresh": True}}),
    # "BERT-MS" and "BERT-MS-CLS" of Lassance et al. (SIGIR 2023): masks of 15%, 80/10/10.
    "mlm": Method("mlm", published=_MLM),
    "mlm_cls_tf": Method("mlm_cls_tf", published=_MLM),
    # Ankner et al., EACL 2024: masks of 30% that fall to 15% over the run.
    "mlm_falling": Method("mlm", {"encoder_mask_ratio": 0.3, "final_mask_ratio": 0.15}, published=_MLM),
    # Xiao et al., EMNLP 2022: encoder mask 0.3, enhanced decoding with mask 0.5.
    "retromae": Method("retromae", published=_RETROMAE),
    # Xiao et al., ACL 2023: and a bag of words from the ordinary tokens, fine-tuned with both in three stages.
    "dupmae": Method("dupmae", protocol="dupmae", published=_RETROMAE),
    # Long et al. 2022: 15% of the tokens, preferring words of high idf in the corpus.
    "rom": Method("rom", changes={"weights": {"source": "idf"}}, published=_MLM),
    # Gao & Callan, EMNLP 2021: a head of two layers sees token states of half the layers, and the late [CLS].
    "condenser": Method("condenser", published=_CONDENSER),
    # Gao & Callan, ACL 2022: on pairs of spans, temperature 1. Published runs start from Condenser, its head included.
    "cocondenser": Method("cocondenser", published=_CONDENSER),
    # Shen et al., ICLR 2023: masks of 0.3 and 0.5, a decoder of two layers; SPLADE in three stages.
    "lexmae": Method(
        "lexmae", protocol="lexmae", published=training_sizes(20 * MSMARCO / 2048, 2048, 3e-4, warmup=0.05)
    ),
    # Wu et al., AAAI 2023: two spans of a document, masks of 0.3 and 0.45.
    "cotmae": Method("cotmae", published=training_sizes(1_200_000, 512, 1e-4)),
    # Wu et al., EMNLP 2023: mask of 0.3, one causal block with a window of three tokens.
    "cotmae_qc": Method("cotmae_qc"),
    # Wu et al. 2023: no hyper-parameters published; spans as in the first version.
    "cotmae_v2": Method("cotmae_v2", published=training_sizes(50_000, 16_384, 4e-4)),
    # Ma et al. 2023: experts for queries and passages; then its controls: one encoder for both sides ("Siamese"), two
    # whole encoders ("full sep"), each side pre-trained in the other's expert ("switch").
    "cotmote": _cotmote("ffn"),
    "cotmote_siamese": _cotmote("none"),
    "cotmote_separate": _cotmote("all"),
    "cotmote_switched": _cotmote("ffn", switched=True),
    # Zhou et al., ECML-PKDD 2023: masks of 0.3 and 0.5, four decoders of two layers, keywords by idf.
    "master": Method(
        "master",
        changes={"weights": {"source": "idf"}},
        published=training_sizes(40 * MSMARCO / 2048, 2048, 3e-4),
    ),
    # Wang et al., ACL 2023: 30% replaced for the encoder, half for the decoder; a small generator of its own.
    "simlm": Method("simlm", published=training_sizes(80_000, 2048, 3e-4)),
    # Lu et al., EMNLP 2021: mask of 0.15, three causal layers with a window of two tokens.
    "seed": Method("seed", published=_CONDENSER),
    # Wang, Reimers & Gurevych, EMNLP Findings 2021: 60% of the words deleted; 100,000 steps of 8, a constant rate.
    "tsdae": Method("tsdae", published={**training_sizes(100_000, 8, 3e-5, warmup=0.0), "pretrain.decay": 0.0}),
    # Ma et al., SIGIR 2024: mask of 0.3; the bag's weight falls from 1 to 0.1.
    "bow": Method("bow"),
    # Gao, Yao & Chen, EMNLP 2021: self-contrast by a dropout of 0.1, in fine-tuning too.
    "simcse": Method("simcse", changes={"backbone": {"dropout": 0.1}}),
    # Chuang et al., NAACL 2022: and replaced-token detection, weight 0.005; an epoch of a million sentences.
    "diffcse": Method(
        "diffcse",
        changes={"backbone": {"dropout": 0.1}},
        published=training_sizes(1_000_000 / 64, 64, 7e-6, warmup=0.0),
    ),
    # Lee, Chang & Toutanova, ACL 2019: a run of 5 to 50% of the words, cut from nine passages of ten.
    "ict": Method("ict"),
    # Xu et al., ACL Findings 2022: the same by two encoders in turn, with a cache; its sizes could not be read.
    "laprador": Method("laprador", changes={"backbone": {"dropout": 0.1, "experts": "all"}}),
    # Ram et al., NAACL 2022: windows around recurring phrases find another passage of an article; sizes: its command.
    "spider": Method(
        "spider",
        changes={"spans": {"documents": "titles", "short_share": 0.0, "recurring": True}},
        published=training_sizes(200_000, 1024, 2e-5, warmup=0.01),
    ),
    # Wang et al. 2022 (E5) and Li et al. 2023 (GTE): titles find their passages.
    "e5": Method("weak_pairs", changes=_TITLES, published=training_sizes(20_000, 32_768, 2e-4, warmup=0.05)),
    "gte": Method("weak_pairs", {"candidates": "all"}, _TITLES),
    # Vera et al. 2025 (EmbeddingGemma), Akram et al. 2026 (jina-embeddings-v5-text): MiniLM's vectors are the targets.
    "distil_vectors": Method("distil_vectors"),
    # RetroMAE with the second stage of its paper: negatives mined once by the first stage ("ANCE-style").
    "retromae_ance": Method("retromae", changes={"protocol": "ance", "stages": [FINETUNING, FINETUNING | _MINED]}),
}
