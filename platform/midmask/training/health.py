"""What a training watches besides its loss: measures of collapse, the distance from its start, a small search.

cosine_of_random_pairs  mean cosine of the sentence vectors of two different rows; 1: all texts look alike
active_dimensions       over how many dimensions the variance of the vectors is spread: (sum of the covariance's
                        eigenvalues)² / sum of their squares, the participation ratio; at most rows - 1
distance_to_start       of an encoder that was trained before: mean of 1 - cosine between its vectors and those that the
                        same texts had at the start. Middle training on one corpus of a finished retriever takes away
                        some of what its makers put in
and what the objective says of itself, such as its decoder's loss with and without the sentence vector

The probe ranks dev queries against their relevant passages and others drawn at random, by the cosine of [CLS] vectors.
The pool is a sample, so values are higher than on the whole corpus: they are for comparing steps of a run, and runs on
one corpus.
"""

import logging
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.core.arrays import Ints32
from midmask.core.batch import Batch, TokenRows
from midmask.core.randomness import fixed_sample, numpy_stream
from midmask.encoders.backbone import Backbone
from midmask.encoders.representation import Side
from midmask.objectives import Objective
from midmask.retrieve.searched_queries import relevant_passages
from midmask.store.place import Place
from midmask.store.tables import read_table
from midmask.training.collapse import find_collapses
from midmask.training.examples import TokenTable
from midmask.training.plan import Rows

log = logging.getLogger(__name__)


DISTANCE = "distance_to_start"
"""Name of the distance where it is logged."""


class Guard:
    """The encoder that a middle training began with, frozen; its dropout is off from now on."""

    def __init__(self, start: Backbone) -> None:
        self._start = start.eval().requires_grad_(False)

    def distances(self, backbone: Backbone, text: TokenRows) -> Tensor:
        """1 - cosine of the sentence vectors that both encoders have for each whole, unmasked text; float32 [B]."""
        with torch.no_grad():
            before_BD = _vectors(self._start, text)
        return 1 - F.cosine_similarity(_vectors(backbone, text), before_BD, dim=1)


def _vectors(backbone: Backbone, text: TokenRows) -> Tensor:
    hidden_BLD = backbone.hidden(text.ids_BL, text.lengths_B)
    return backbone.sentence_vector(hidden_BLD, text.lengths_B).float()


@torch.no_grad()
def examine(objective: Objective, batch: Batch, guard: Guard | None = None) -> dict[str, float]:
    """The numbers above, by name, for this worker's batch; dropout is off, and nothing random is used up."""
    was_training = objective.training
    objective.eval()
    try:
        text = batch.texts["passage" if "passage" in batch.texts else "query"]
        hidden_BLD = objective.backbone.hidden(text.ids_BL, text.lengths_B)
        vectors_BD = objective.backbone.sentence_vector(hidden_BLD, text.lengths_B).float()
        values = {**spread(vectors_BD), **objective.health(objective.draw(batch))}
        if guard is not None:
            values[DISTANCE] = guard.distances(objective.backbone, text).mean()
    finally:
        objective.train(was_training)
    return {name: float(value) for name, value in values.items()}


def spread(vectors_BD: torch.Tensor) -> dict[str, torch.Tensor]:
    """How differently texts are represented; shape [] each, 0 where there is one row."""
    rows = len(vectors_BD)
    unit_BD = F.normalize(vectors_BD, dim=1)
    pairs = max(rows * (rows - 1), 1)
    cosine = (unit_BD.sum(0).square().sum() - unit_BD.square().sum()) / pairs
    centred_BD = vectors_BD - vectors_BD.mean(0)
    gram_BB = centred_BD @ centred_BD.t()  # the covariance's eigenvalues that are not zero
    active = gram_BB.trace().square() / gram_BB.square().sum().clamp(min=torch.finfo(gram_BB.dtype).tiny)
    return {"cosine_of_random_pairs": cosine, "active_dimensions": active}


@dataclass
class HealthWatch:
    """Warns of each kind of collapse once, with its step. `steps`: of the whole run."""

    steps: int
    collapses: dict[str, int] = field(default_factory=dict)

    def look(self, step: int, values: dict[str, float]) -> None:
        """Reads what `examine` gave after `step` steps."""
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        for kind, meaning in find_collapses(step, self.steps, values).items():
            if kind not in self.collapses:
                self.collapses[kind] = step
                log.warning("collapse of the %s at step %d: %s (%s)", kind, step, meaning, numbers)


PROBE_QUERIES, PROBE_PASSAGES = 200, 2000
"""Most queries, and most passages that are added to their relevant ones."""

PROBE_BATCH = 64
PROBE_CUTOFF = 10


@dataclass(frozen=True)
class Probe:
    """Token ids of queries and passages, and the rows of `passages` that are relevant to each query."""

    queries: list[Ints32]
    passages: list[Ints32]
    relevant: list[Rows]

    @torch.no_grad()
    def reciprocal_rank(self, backbone: Backbone, pad_id: int, device: torch.device) -> float:
        """Mean RR@10, in eval mode; ties go to the earlier passage."""
        was_training = backbone.training
        backbone.eval()
        try:
            passage_ND = _encode(backbone, self.passages, "passage", pad_id, device)
            query_QD = _encode(backbone, self.queries, "query", pad_id, device)
        finally:
            backbone.train(was_training)
        scores_QN = query_QD @ passage_ND.t()
        top_QK = scores_QN.argsort(dim=1, descending=True, stable=True)[:, :PROBE_CUTOFF].cpu().numpy()
        gains = [_reciprocal(top, relevant) for top, relevant in zip(top_QK, self.relevant, strict=True)]
        return float(np.mean(gains))


def open_probe(tokens: Place, corpus: Place, split: str = "dev") -> Probe | None:
    """A probe on a split of the corpus, always the same one; none if no query of the split has a relevant passage."""
    judged, queries = relevant_passages(corpus, split), read_table(tokens / "queries.parquet")
    chosen = fixed_sample(pc.unique(judged["query_id"]).to_pylist(), PROBE_QUERIES)
    if not chosen:
        return None
    table = TokenTable(tokens / "passages")
    judged = judged.filter(pc.is_in(judged["query_id"], value_set=pa.array(chosen)))
    rows = table.rows_of(judged["doc_id"])
    pool = np.unique(np.concatenate([rows[rows >= 0], numpy_stream(0).permutation(table.count)[:PROBE_PASSAGES]]))
    owner = np.array(judged["query_id"].to_pylist())
    relevant = [np.searchsorted(pool, rows[(owner == query) & (rows >= 0)]) for query in chosen]
    places = pc.index_in(pa.array(chosen), value_set=queries["query_id"].combine_chunks())
    texts = queries["ids"].take(places).to_pylist()
    return Probe([np.array(text, np.int32) for text in texts], table.read(pool), relevant)


def _reciprocal(top: Rows, wanted: Rows) -> float:
    places = np.flatnonzero(np.isin(top, wanted))
    return 1 / (1 + int(places[0])) if len(places) else 0.0


def _encode(backbone: Backbone, texts: list[Ints32], side: Side, pad_id: int, device: torch.device) -> Tensor:
    """Unit vectors, [N, D]; texts of like length go together."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = torch.empty(len(texts), backbone.width, device=device)
    for start in range(0, len(texts), PROBE_BATCH):
        rows = order[start : start + PROBE_BATCH]
        pieces = [torch.from_numpy(texts[row].astype(np.int64)) for row in rows]
        ids_BL = torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=pad_id)
        lengths_B = torch.tensor([len(piece) for piece in pieces], device=device)
        hidden_BLD = backbone.hidden(ids_BL.to(device), lengths_B, side)
        vectors_BD = backbone.sentence_vector(hidden_BLD, lengths_B)
        vectors[torch.from_numpy(rows).to(device)] = F.normalize(vectors_BD.float(), dim=1)
    return vectors
