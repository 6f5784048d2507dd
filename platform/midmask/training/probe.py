"""An early look at quality while pre-training: a small zero-shot search with the encoder as it is.

Dev queries against their relevant passages and others drawn at random, by the cosine of [CLS] vectors. The pool is a
sample, so values are higher than on the whole corpus: they are for comparing steps of a run, and runs on one corpus.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.arrays import Ints32
from midmask.artifact import Place
from midmask.encoders.backbone import Backbone, Side
from midmask.randomness.streams import numpy_stream
from midmask.randomness.texts import fixed_sample
from midmask.retrieve.selection import relevant_passages
from midmask.training.plan import Rows
from midmask.training.table import TokenTable, read_table

QUERIES, PASSAGES = 200, 2000
"""Most queries, and most passages that are added to their relevant ones."""

BATCH = 64
CUTOFF = 10


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
        top_QK = scores_QN.argsort(dim=1, descending=True, stable=True)[:, :CUTOFF].cpu().numpy()
        gains = [_reciprocal(top, wanted) for top, wanted in zip(top_QK, self.relevant, strict=True)]
        return float(np.mean(gains))


def open_probe(tokens: Place, corpus: Place, split: str = "dev") -> Probe | None:
    """A probe on a split of the corpus, always the same one; none if no query of the split has a relevant passage."""
    judged, queries = relevant_passages(corpus, split), read_table(tokens / "queries.parquet")
    chosen = fixed_sample(pc.unique(judged["query_id"]).to_pylist(), QUERIES)
    if not chosen:
        return None
    table = TokenTable(tokens / "passages")
    judged = judged.filter(pc.is_in(judged["query_id"], value_set=pa.array(chosen)))
    rows = table.rows_of(judged["doc_id"])
    pool = np.unique(np.concatenate([rows[rows >= 0], numpy_stream(0).permutation(table.count)[:PASSAGES]]))
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
    for start in range(0, len(texts), BATCH):
        rows = order[start : start + BATCH]
        pieces = [torch.from_numpy(texts[row].astype(np.int64)) for row in rows]
        ids_BL = torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=pad_id)
        lengths_B = torch.tensor([len(piece) for piece in pieces], device=device)
        hidden_BLD = backbone.hidden(ids_BL.to(device), lengths_B, side)
        vectors_BD = backbone.sentence_vector(hidden_BLD, lengths_B)
        vectors[torch.from_numpy(rows).to(device)] = F.normalize(vectors_BD.float(), dim=1)
    return vectors
