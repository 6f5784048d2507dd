"""How much there is to read and to write: from the records of finished steps where there are any, else from a look into
the files. Bytes are rows times bytes of a row: what is compressed (texts, token rows, ranked lists) as measured on
SQuAD's passages, what is not (vectors, weights) by its shape.

prepared       passages and queries of the record; characters of the first passages of the first shard
not prepared   some pieces of the collection's files are read for a block each: what rows they hold by their bytes,
               times the bytes of all; said to be an estimate
tokenised      tokens of the record
not tokenised  mean characters / 4.5 and two specials, cut at max_length
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midmask.corpora.chunks import Piece
from midmask.corpora.config import CorpusConfig
from midmask.corpora.reader import open_corpus
from midmask.experiment.graph import Step
from midmask.store.artifact import RECORD, Artifact, load
from midmask.store.place import Place
from midmask.store.pretrained import model_folder
from midmask.store.tables import read_batches
from midmask.text.tokens import TokensConfig
from midmask.text.vocabulary import load_tokenizer

CHARACTERS_PER_TOKEN = 4.5
QUERY_TOKENS = 14
"""Tokens of a question, specials included (SQuAD's under BERT's vocabulary)."""
SHARE_OF_SPLIT = {"train": 0.8}
"""Fraction of the queries in a split whose files have no judgements of their own; a tenth in every other split."""
LOOKED_AT = 8
"""Pieces of a collection that are read for a block each."""
GZIP = 3.0
"""Bytes of text in a byte of a compressed file."""
PYDOCS_BYTES, PYDOCS_CHARACTERS = 7_800, 620
"""Bytes of Python source per passage of pydocs, and characters of a passage (numpy, pandas, scipy and scikit-learn); to
read modules for it would take minutes."""


@dataclass(frozen=True)
class Volume:
    """The number and the lengths of a collection's texts."""

    passages: int
    queries: int
    splits: dict[str, int]  # number of queries with a judgement, by split
    characters: float  # mean of the passages in the sample
    source: str  # where the numbers are from, as a sentence's end

    def of_split(self, split: str | None, most: int | None = None) -> int:
        """Queries of a split, at most so many."""
        guess = round(self.queries * SHARE_OF_SPLIT.get(str(split), 0.1))
        queries = max(1, min(self.splits.get(str(split), guess), self.queries))
        return min(queries, most or queries)


@dataclass(frozen=True)
class TextVolumes:
    """A collection as token rows."""

    volume: Volume
    tokens: float  # mean of a passage, specials included
    query_tokens: float
    vocabulary: int


class Volumes:
    """Looks up the volumes of collections, each once."""

    def __init__(self, storage: Place) -> None:
        self._storage = storage
        self._corpora: dict[str, Volume] = {}
        self._texts: dict[str, TextVolumes] = {}

    def find_finished(self, step: Step) -> Artifact | None:
        place = step.place(self._storage)
        return load(place) if (place / RECORD).exists() else None

    def corpus(self, step: Step) -> Volume:
        """The volume of a step `prepare` or `join`."""
        if (known := self._corpora.get(step.fingerprint)) is None:
            if (done := self.find_finished(step)) is not None:
                known = _read_volume(done)
            elif step.inputs:
                known = _join([self.corpus(source) for source in step.inputs.values()])
            else:
                known = _estimate_volume(step.config)  # type: ignore[arg-type]
            self._corpora[step.fingerprint] = known
        return known

    def texts(self, step: Step) -> TextVolumes:
        """The token volumes of a step `tokenise`."""
        if step.fingerprint not in self._texts:
            self._texts[step.fingerprint] = self._read(step)
        return self._texts[step.fingerprint]

    def _read(self, step: Step) -> TextVolumes:
        config: Any = step.config
        done = self.find_finished(step)
        result = done.result if done is not None and "tokens" in done.result else {}
        volume = self.corpus(step.inputs["corpus"])
        if result:
            mean = result["tokens"] / max(1, result["passages"])
        else:
            mean = min(2 + volume.characters / CHARACTERS_PER_TOKEN, config.max_length)
        query_tokens = min(config.query_length, QUERY_TOKENS)
        return TextVolumes(volume, mean, query_tokens, result.get("vocabulary") or self._vocabulary(step))

    def _vocabulary(self, step: Step) -> int:
        if "like" in step.inputs:
            return self.texts(step.inputs["like"]).vocabulary
        config: TokensConfig = step.config  # type: ignore[assignment]
        return config.vocabulary_size if config.tokenizer is None else _count_entries(config.tokenizer)


@lru_cache(maxsize=16)
def _count_entries(tokenizer: str) -> int:
    return len(load_tokenizer(model_folder(tokenizer, field="tokens.tokenizer")))


def _read_volume(done: Artifact) -> Volume:
    result, names = done.result, (done.place / "docs").names()
    characters = 0.0
    if names:
        characters = _mean_characters([next(read_batches(done.place / "docs" / names[0], columns=["title", "text"]))])
    splits = {name: int(split["queries"]) for name, split in result.get("splits", {}).items()}
    return Volume(result["passages"], result.get("queries", 0), splits, characters, "of its record")


def _join(volumes: Sequence[Volume]) -> Volume:
    """Several collections read as one; only their passages are read."""
    passages = sum(volume.passages for volume in volumes)
    characters = sum(volume.passages * volume.characters for volume in volumes) / max(1, passages)
    return Volume(passages, 0, {}, characters, "; ".join(dict.fromkeys(volume.source for volume in volumes)))


def _estimate_volume(config: CorpusConfig) -> Volume:
    corpus = open_corpus(config)
    size = sum(piece.size for piece in corpus.docs)
    source = f"estimated from {size / 1e6:,.1f} MB of files"
    if config.format == "pydocs":
        passages = min(max(1, size // PYDOCS_BYTES), config.max_passages or size)
        return Volume(passages, passages, {}, PYDOCS_CHARACTERS, source)
    rows, characters = _estimate_rows(corpus.docs)
    passages = min(rows, config.max_passages or rows)
    queries, _ = _estimate_rows(corpus.queries)
    names = {piece.split for piece in corpus.qrels if piece.split}
    splits = {name: _estimate_rows([piece for piece in corpus.qrels if piece.split == name])[0] for name in names}
    return Volume(passages, queries, splits, characters, source)


def _estimate_rows(pieces: Sequence[Piece]) -> tuple[int, float]:
    """Rows of some pieces, by the bytes of the blocks that are looked at; and the mean characters of their texts."""
    if not pieces:
        return 0, 0.0
    size, tables = 0.0, []
    for piece in pieces[:: -(-len(pieces) // LOOKED_AT)]:
        table, whole = _first_block(piece)
        tables.append(table)
        size += piece.size if whole else _bytes_of(table) / (GZIP if piece.file.endswith(".gz") else 1)
    rows, total = sum(map(len, tables)), sum(piece.size for piece in pieces)
    return max(1, round(total * rows / max(1.0, size))), _mean_characters(tables)


def _first_block(piece: Piece) -> tuple[pa.Table, bool]:
    """Good rows of a piece's first block, and whether that is all of the piece."""
    blocks: Iterator[pa.Table] = piece.read()
    first = next(blocks)
    for name in ("fault", "rule"):  # what is wrong with a row, or what leaves it out
        if name in first.column_names:
            first = first.filter(pc.is_null(first[name]))
    return first, not list(islice(blocks, 1))


def _mean_characters(tables: Sequence[Any]) -> float:
    """Mean number of characters of the texts in some tables; 0 if they have none."""
    lengths = [
        len(text or "") for table in tables if "text" in table.schema.names for text in table["text"].to_pylist()
    ]
    return sum(lengths) / max(1, len(lengths))


def _bytes_of(table: pa.Table) -> float:
    """Bytes that the rows take in a file: their texts and ids, and a few characters around each."""
    columns = [name for name in ("doc_id", "query_id", "title", "text") if name in table.column_names]
    return 12.0 * len(table) + sum(int(pc.sum(pc.binary_length(table[name])).as_py() or 0) for name in columns)


RANKED_BYTES = 7  # bytes a row of a ranked list, of mined negatives or of a run file
PAIR_BYTES = 30  # bytes a scored pair, with its candidate
OF_TEXTS = {
    **dict.fromkeys(("prepare", "join", "queries"), 0.6),
    **dict.fromkeys(("spans", "pseudo_queries", "statistics", "weigh"), 0.9),
    **{"tokenise": 0.36, "bm25_words": 0.28, "bm25_index": 0.93, "near_duplicates": 0.55, "overlap": 0.0},
}
"""Bytes that steps which go through a whole collection write for a character of its texts, compressed with zstd."""


def collection_of(step: Step) -> Step | None:
    """The collection that a step reads; None for one that reads none."""
    while step.name not in ("prepare", "join"):
        sources = [step.inputs[name] for name in ("corpus", "tokens", "words") if name in step.inputs]
        if not sources:
            return None
        step = sources[0]
    return step


def read_and_written(step: Step, volumes: Volumes) -> tuple[float, float]:
    """The texts that a step without a model reads, passages or queries, and the bytes that it writes."""
    config: Any = step.config
    collection = collection_of(step)
    if collection is None:
        return 0.0, 0.0
    volume = volumes.corpus(collection)
    if step.name in OF_TEXTS:
        queries = volume.queries if step.name in ("prepare", "tokenise") else 0
        return volume.passages + queries, OF_TEXTS[step.name] * volume.passages * volume.characters
    splits = getattr(config, "splits", None) or (getattr(config, "split", "train"),)
    queries = sum(volume.of_split(split, getattr(config, "max_queries", None)) for split in splits)
    return queries, RANKED_BYTES * queries * min(list_length(step), volume.passages)


def list_length(step: Step) -> int:
    """Candidates per query in mined negatives, or in a ranked list."""
    config: Any = step.config
    return int(config.per_query if hasattr(config, "per_query") else getattr(config, "depth", 1))


LINK_BYTES = 8
"""Bytes of an id, or of a link of HNSW's graph, of which a vector has twice as many as the factory string says."""


def dense_bytes(factory: str, width: int) -> float:
    """Bytes of one vector in a faiss index, by its factory string; 4 per dimension where nothing compresses it."""
    if reduced := re.search(r"(?:OPQ\d+_|PCAR?)(\d+)", factory):
        width = int(reduced[1])
    links = re.search(r"HNSW(\d+)", factory)
    graph = 2.0 * LINK_BYTES * int(links[1]) if links else 0.0
    ids = LINK_BYTES if "IVF" in factory else 0
    if product := re.search(r"(?<!O)PQ(\d+)(?:x(\d+))?", factory):
        return graph + ids + int(product[1]) * int(product[2] or 8) / 8
    scalar = re.search(r"SQ(4|6|8|fp16)", factory)
    bits = {"4": 4, "6": 6, "8": 8, "fp16": 16}[scalar[1]] if scalar else 32
    return graph + ids + width * bits / 8
