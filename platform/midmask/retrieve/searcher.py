"""Search with texts that are typed: the queries of a person, not those of a collection.

The passages are those of an encode step, so a typed query and an evaluation read the same vectors.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from midmask.errors import UserError
from midmask.retrieve.best import Shard
from midmask.retrieve.blocks import StoredPassages, passage_blocks
from midmask.retrieve.search import SearchConfig, open_shard
from midmask.retrieve.text_encoder import TextEncoder
from midmask.store.artifact import Artifact


class Hit(NamedTuple):
    """A passage that a search found."""

    doc_id: str
    score: float  # larger is better
    title: str
    text: str


class Searcher:
    """Searches all passages of a collection, exactly; vectors and model are opened at the first search and kept.

    Args:
        model: artifact with the encoder. corpus, tokens: of the collection. passages: its passages, encoded by that
            model. query_length: tokens a query is cut to; none: as tokenised.
    """

    def __init__(
        self,
        *,
        model: Artifact,
        corpus: Artifact,
        tokens: Artifact,
        passages: Artifact,
        query_length: int | None = None,
    ) -> None:
        self._passages = passages
        self._stored = StoredPassages(corpus.place)
        self._tokens = tokens
        self._queries = TextEncoder(model, tokens, "query", query_length)

    def search(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The best `k` passages of each query, the best first; ties rank by document id. Fewer where the collection is
        smaller.

        Raises:
            UserError: if k is below 1.
        """
        if k < 1:
            raise UserError(f"k = {k}: a search gives at least 1 passage")
        if not queries:
            return []
        scores_QK, rows_QK = self._shard.search(self._queries.encode_queries(queries), k)
        return [
            [self._read_hit(int(row), float(score)) for score, row in zip(*lists, strict=True) if row >= 0]
            for lists in zip(scores_QK, rows_QK, strict=True)
        ]

    @cached_property
    def _shard(self) -> Shard:
        views = tuple(self._passages.result["views"])
        return open_shard(self._passages.place, passage_blocks(self._tokens.place), views, SearchConfig())

    def _read_hit(self, row: int, score: float) -> Hit:
        doc_id, title, text = self._stored.row(row)
        return Hit(doc_id, score, title, text)
