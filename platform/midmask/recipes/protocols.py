"""The fine-tuning protocols as the papers state them: the representation that is scored, and the stages that train it.

A protocol is put on any recipe with `--protocol NAME`, so that methods can be compared under equal conditions. Plain
data, imported without torch, so that a misspelt name is answered at once; `PROTOCOLS["dpr"]()` is its config.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from midmask.core.registry import Registry

if TYPE_CHECKING:
    from midmask.recipes.protocol_configs import Protocol

Fields = Mapping[str, Any]

MSMARCO_QUERIES = 502_939
"""Train queries of MS MARCO that have a relevant passage: what published epochs are counted in."""


def steps(count: int, *, batch: int, rate: float, warmup: float = 0.0) -> Fields:
    """Training for so many steps, with linear decay after the warm-up."""
    return {"steps": count, "batch_size": batch, "learning_rate": rate, "warmup": warmup, "decay": 1.0 - warmup}


def epochs(count: float, *, batch: int, rate: float, warmup: float = 0.0) -> Fields:
    """Training for so many passes over the train queries of MS MARCO."""
    return steps(round(count * MSMARCO_QUERIES / batch), batch=batch, rate=rate, warmup=warmup)


def stage(
    train: Fields,
    negatives: str = "",
    per_query: int = 0,
    first: int = 200,
    regularisers: Fields = MappingProxyType({}),
    **fields: Any,
) -> Fields:
    """A stage with the contrastive loss and these regularisers, unless another loss is given.

    Args:
        negatives: sources, divided by spaces. first: ranks that they are drawn from, once, unless `mine` says how.
    """
    mine = {"mine": {"depth": first, "per_query": first}} if negatives else {}
    loss = {"name": "contrastive", "regularisers": regularisers}
    common = {"loss": loss, "negatives": negatives.split(), "per_query": per_query, "train": train}
    return {**common, **mine, **fields}


def distillation(**fields: Any) -> Fields:
    return {"name": "distillation", **fields}


def flops(query: float, passage: float, **fields: Any) -> Fields:
    """FLOPS on both sides, with these weights."""
    return {"query": "flops", "passage": "flops", "lambda_query": query, "lambda_passage": passage, **fields}


SPLADE: Fields = {"dense": None, "lexical": "splade"}

RAMPED = flops(3e-4, 1e-4, ramp=1 / 3)
"""SPLADE's own: its 50,000 of 150,000 steps."""

TEACHER: Fields = {
    "loss": {"name": "cross_encoder", "max_length": 200},
    "train": steps(250_000, batch=8, rate=1e-5, warmup=0.004),
    "per_query": 64,
    "mine": {"depth": 200, "per_query": 200},
    "query_length": 64,
    "passage_length": 200,
}
"""RetroMAE's reranker, from the recipe's encoder before its middle training: lists of 1 + 64 of BM25's first 200, pairs
of 200 tokens, batches of 8, 4 epochs."""


def _sigir23(negatives: int, *, distil: bool, splade: bool) -> Fields:
    """One of the eight settings of "Benchmarking Middle-Trained Language Models for Neural Search" (Lassance et al.,
    SIGIR 2023): 1 or 32 negatives a query, with or without a teacher, dense or SPLADE. Numbers are the paper's and,
    where it is silent, those of the code released beside it. The published negatives and scores are
    the msmarco-hard-negatives collection's, by a MiniLM cross-encoder: on MS MARCO set stages.0.negatives=["file:PATH"]
    and stages.0.teacher.folder. Elsewhere BM25 ranks, and one teacher for all systems is trained on the same lists. The
    1-negative runs are those of SPLADE's first trainer: its in-batch loss has the batch's positives and the query's own
    negative as candidates, and it regularises positives and negatives apart. Their regularisers are unpublished
    ("default values"): here SPLADE's. The 32-negative runs have constant ones, from the first step on.

    The query subsets of the paper's Tables 5 and 6 are stages.0.queries=50000 or 100000.
    """
    one_negative = negatives == 1
    constant = {"query": "l1", "passage": "flops", "lambda_query": 5e-3, "lambda_passage": 5e-3, "anti_zero": 1.0}
    regularisers = ({**RAMPED, "passage_groups": "separate"} if one_negative else constant) if splade else {}
    loss: Fields = {"drop_duplicates": False, "regularisers": regularisers}
    taught: Fields = {}
    if distil:  # 0.99 of the teacher's term and 0.01 of the contrastive one, over the worker's own negatives
        weights = {"loss": "margin_mse" if one_negative else "kl", "weight": 0.99, "ce_weight": 0.01}
        taught = {"teacher": {**TEACHER, "mine": FIRST_1000}, "missing_positive_score": "highest"}
        loss = distillation(candidates="local_negatives", **weights, **loss)
    else:
        loss = {"name": "contrastive", "candidates": "positives" if one_negative else "local_negatives", **loss}
    train = steps(150_000, batch=128, rate=2e-5, warmup=0.01) if one_negative else MANY_NEGATIVES
    length = 256 if one_negative else 128
    return {
        "representation": SPLADE if splade else {},
        "stages": [stage({**train, "weight_decay": 0.0}, "bm25", negatives, 1000, loss=loss, **taught)],
        "query_length": length,
        "passage_length": length,
    }


FIRST_1000: Fields = {"depth": 1000, "per_query": 1000}

MANY_NEGATIVES = epochs(5, batch=20, rate=2e-5, warmup=0.01)
"""5 queries on each of 4 GPUs."""


def _tevatron(per_query: int, rate: float) -> Fields:
    """3 epochs with BM25's negatives, then 2 with BM25's and mined ones together, both from the pre-trained encoder:
    8 queries on each of 8 devices, and 30 of the first 200 ranks, drawn once.
    """
    sampled = {"depth": 200, "per_query": 30}
    first, second = (epochs(count, batch=64, rate=rate, warmup=0.1) for count in (3, 2))
    stages = [
        stage(first, "bm25", per_query, mine=sampled),
        stage(second, "bm25 mined", per_query, mine=sampled),
    ]
    return {"stages": stages, "titles": True}


def _dupmae(representation: Fields) -> Fields:
    """Xiao et al. 2023, section 4: in-batch negatives, then mined ones, then a teacher's opinion; on [CLS] and ordinary
    tokens together, or on either alone. Batches, rates, steps, the number of negatives and the teacher's training are
    unpublished: they are RetroMAE's here. So is whether a stage goes on from the one before it; here
    it does.
    """
    on: Fields = {"starts_from": "previous"}
    stages = [
        stage(FOUR_EPOCHS),
        stage(FOUR_EPOCHS, "mined", 15, **on),
        stage(FOUR_EPOCHS, "mined:0", 15, loss=distillation(loss="soft_ce"), teacher=TEACHER, **on),
    ]
    return {"representation": representation, "stages": stages, "query_length": 32, "passage_length": 144}


FOUR_EPOCHS = epochs(4, batch=128, rate=2e-5)

LEXMAE = epochs(3, batch=24, rate=2e-5, warmup=0.05)

IN_BATCH = epochs(3, batch=128, rate=2e-5, warmup=0.1)

RETROMAE = [stage(FOUR_EPOCHS, "bm25", 15), stage(FOUR_EPOCHS, "mined", 15)]

ANY_OF_200: Fields = {"depth": 200, "per_query": 100}

STAGES: dict[str, Fields] = {
    # One stage; the other queries' passages are the negatives: the default of most recipes.
    "in_batch": {"stages": [stage(IN_BATCH)]},
    # The same of SPLADE's lexical vectors, with the regularisers of SPLADE++ (Formal et al. 2022).
    "in_batch_splade": {
        "representation": SPLADE,
        "stages": [stage(IN_BATCH, regularisers=RAMPED)],
    },
    # Of the dense vector and SPLADE's words together: their scores are added.
    "in_batch_hybrid": {
        "representation": {"lexical": "splade"},
        "stages": [stage(IN_BATCH, regularisers=RAMPED)],
    },
    # Of a 128-dimensional vector per token, scored by MaxSim (ColBERT, Khattab & Zaharia 2020). ColBERT learns from
    # triples of a query and two passages at rate 3e-6; its code also skips punctuation in passages, fills queries up
    # with [MASK] and puts a marker before each text.
    "in_batch_late": {"representation": {"dense": None, "tokens": 128}, "stages": [stage(IN_BATCH)]},
    # Karpukhin et al. 2020, on NQ: batches of 128, one BM25 negative a query, rate 1e-5, 40 epochs, 256 tokens. BM25's
    # negatives are the best passages without the answer there; here any of the first 100 that is not judged.
    "dpr": {
        "stages": [
            stage(
                epochs(40, batch=128, rate=1e-5, warmup=0.1),
                "bm25",
                1,
                mine={"depth": 100, "per_query": 1, "choose": "top"},
            )
        ],
        "titles": True,
        "query_length": 256,
        "passage_length": 256,
    },
    # DPR's first stage, then negatives mined once with it, from the pre-trained encoder again: what RetroMAE's,
    # DupMAE's and CoT-MAE's papers call ANCE: static, not its asynchronous refresh.
    "ance": {
        "stages": [stage(epochs(3, batch=128, rate=2e-5), source, 1, mine=ANY_OF_200) for source in ("bm25", "mined")]
    },
    **{
        f"sigir23_{negatives}neg{'_distil' * distil}{'_splade' * splade}": _sigir23(
            negatives, distil=distil, splade=splade
        )
        for negatives in (1, 32)
        for distil in (False, True)
        for splade in (False, True)
    },
    "dupmae": _dupmae({"width": 384, "lexical": "logits", "passage_terms": 384}),  # "384+384"
    "dupmae_cls": _dupmae({}),  # "CLS:768" of its Table 3
    "dupmae_ot": _dupmae({"dense": None, "lexical": "logits", "passage_terms": 768}),  # "OT:768"
    # Shen et al. 2023: SPLADE without special tokens: 15 negatives of BM25's first 200 ranks, then of its own; then 23
    # of its own first 1,000, with KL under a reranker and 0.2 of in-batch CE. FLOPS weighs queries three quarters as
    # much as passages. Every stage starts from the pre-trained encoder. The published reranker runs inside the training
    # step; here its scores are a file.
    "lexmae": {
        "representation": {**SPLADE, "specials": False},
        "stages": [
            stage(LEXMAE, "bm25", 15, regularisers=flops(0.0015, 0.002)),
            stage(LEXMAE, "mined", 15, regularisers=flops(0.006, 0.008)),
            stage(
                epochs(3, batch=16, rate=2e-5, warmup=0.05),
                "mined",
                23,
                1000,
                loss=distillation(loss="kl", ce_weight=0.2, regularisers=flops(0.006, 0.008)),
                teacher=TEACHER,
            ),
        ],
        "titles": True,
        "query_length": 32,
        "passage_length": 144,
    },
    # Ma et al. 2023: dense and sparse scores added; BM25's negatives, then its own. The paper prints a rate of 2e-4;
    # all scripts of its authors have 2e-5, and so it is here. FLOPS is not mentioned: λ are SPLADE's. That both stages
    # start from the pre-trained encoder is its lineage's way (CoT-MAE).
    "cotmote": {
        "representation": {"lexical": "splade"},
        "stages": [
            stage(epochs(3, batch=64, rate=2e-5, warmup=0.1), source, 15, regularisers=RAMPED)
            for source in ("bm25", "mined")
        ],
        "query_length": 32,
        "passage_length": 144,
    },
    # How the authors of dense encoders fine-tune them on MS MARCO: two stages from the pre-trained encoder, [CLS], the
    # dot product. Gao & Callan 2022 as Tevatron runs it: 8 passages a query; Wu et al. 2023:
    # 16; Xiao et al. 2022: 16 queries with 16 passages on each of 8 GPUs, without warm-up. RetroMAE's code divides the
    # contrastive gradient by its 8 processes; here it is that of one process.
    "cocondenser": _tevatron(7, 5e-6),
    "cotmae": _tevatron(15, 2e-5),
    "retromae": {"stages": RETROMAE, "titles": True, "query_length": 32, "passage_length": 140},
    # The same, and a third stage that hears a teacher: KL as its code takes the mean, over queries and passages, and
    # 1e-4 of the contrastive loss.
    "retromae_distil": {
        "stages": [
            *RETROMAE,
            {
                **RETROMAE[1],
                "loss": distillation(loss="kl", weight=1 / 16, ce_weight=1e-4),
                "teacher": TEACHER,
            },
        ],
        "titles": True,
        "query_length": 32,
        "passage_length": 140,
    },
    # Generative Pseudo Labeling (Wang et al., NAACL 2022): a retriever adapted to documents by made queries, whose
    # labels are a cross-encoder's margins, so that a query that its passage does not answer teaches little. Published:
    # 32 triples a step for 140,000 steps at 2e-5, 1,000 of them warming up, 350 tokens, 'title text', one negative
    # drawn from 50 of each of two dense retrievers, the dot product of mean vectors, ms-marco-MiniLM-L-6-v2 as teacher
    # (`stages.0.teacher.folder`). Here BM25's first 50 are the negatives, which need no other retriever; and [CLS] is
    # scored, as by the other protocols, unless the backbone's folder says otherwise (`representation.dense=mean`).
    "gpl": {
        "stages": [
            stage(
                steps(140_000, batch=32, rate=2e-5, warmup=1 / 140),
                "bm25",
                1,
                50,
                loss=distillation(loss="margin_mse"),
                teacher=TEACHER,
            )
        ],
        "titles": True,
        "query_length": 350,
        "passage_length": 350,
    },
}
"""Protocol -> its fields, without the name."""


def _protocol(name: str) -> "Protocol":
    from midmask.recipes.protocol_configs import Protocol  # here, for the sake of torch

    return Protocol.model_validate({"name": name, **STAGES[name]})


PROTOCOLS: "Registry[Callable[[], Protocol]]" = Registry(
    "protocol", {name: partial(_protocol, name) for name in STAGES}
)
