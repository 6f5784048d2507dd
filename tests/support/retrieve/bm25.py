"""BM25 over a small corpus: all three steps, and bm25s itself over the whole collection, which they must equal."""

from collections.abc import Mapping
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray

from midmask.retrieve.bm25.index import BM25_INDEX, Bm25IndexConfig
from midmask.retrieve.bm25.search import Bm25Config, rank_with_bm25
from midmask.retrieve.bm25.words import BM25_WORDS, Bm25WordsConfig, StemmedWords
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.retrieve.collection import made


def bm25_index(corpus: Artifact, root: Place, config: Bm25Config | None = None) -> Artifact:
    """The index of a corpus, by its two steps in this process."""
    config = config or Bm25Config()
    words = made(BM25_WORDS, Bm25WordsConfig(titles=config.titles), {"corpus": corpus}, root / "words")
    return made(BM25_INDEX, Bm25IndexConfig(k1=config.k1, b=config.b), {"words": words}, root / "index")


def ranked_by_bm25(config: Bm25Config, inputs: Mapping[str, Artifact], place: Place) -> dict[str, Any]:
    """The ranking step with an index made beside its place."""
    index = bm25_index(inputs["corpus"], Place(f"{place.uri}-of"), config)
    return rank_with_bm25(config, {**inputs, "index": index}, place)


class WholeBm25:
    """bm25s, given all passages at once."""

    def __init__(self, texts: list[str], k1: float = 0.9, b: float = 0.4) -> None:
        self._words = StemmedWords()
        rows = [self._words.ids(text) for text in texts]
        self._index = bm25s.BM25(method="lucene", k1=k1, b=b)
        self._index.index((rows, self._words.known), create_empty_token=False, show_progress=False)

    def scores(self, query: str) -> NDArray[np.float32]:
        """The score of every passage, in row order."""
        known = self._words.known
        words = [known[stem] for stem in self._words.stems(query) if stem in known]
        found: NDArray[np.float32] = self._index.get_scores_from_ids(words)
        return found
