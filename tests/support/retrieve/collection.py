"""A small collection of made-up words with its tokens and a random encoder, in the folders' real layout; BM25 over it:
all three steps, and bm25s itself over the whole collection, which they must equal.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel

from midmask.core.config import Config
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Representation
from midmask.retrieve.bm25.index import BM25_INDEX, BM25_WORDS, Bm25IndexConfig, Bm25WordsConfig, StemmedWords
from midmask.retrieve.bm25.search import Bm25Config, rank_with_bm25
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.index import IndexConfig, IndexFields, SampleConfig, build_index, draw_sample
from midmask.retrieve.search import SearchConfig, search, search_in_parts
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table
from midmask.text.tokens import TokensConfig, tokenise
from midmask.text.vocabulary import Vocabulary

Step = Callable[..., dict[str, Any]]
REPRESENTATIONS = {
    "dense": Representation(),
    "lexical": Representation(dense=None, lexical="splade", query_terms=5),
    "hybrid": Representation(lexical="splade", passage_terms=20),
}
"""Of a searcher, for each kind of vectors."""

SHARD, GROUP = 120, 40
"""Rows of a file and of a row group: small, so that a few hundred passages make many blocks."""


def write_corpus(place: Place, passages: int = 300, queries: int = 40) -> Artifact:
    """Query i is made of words of passage 3i, which is relevant; 3i + 1 is a copy of it for every tenth query."""
    draw = np.random.default_rng(7)
    words = ["".join(draw.choice(list("abcdefghijklmnop"), draw.integers(2, 7))) for _ in range(300)]
    texts = [" ".join(draw.choice(words, draw.integers(3, 40))) for _ in range(passages)]
    for query in range(0, queries, 10):
        texts[3 * query + 1] = f"  {texts[3 * query].upper()} "
    ids = [f"d{(row * 7919) % 1000:03d}" for row in range(passages)]
    return write_parts(
        place,
        docs=[(doc_id, "", text) for doc_id, text in zip(ids, texts, strict=True)],
        queries=[(f"q{query}", " ".join(texts[3 * query].split()[:4])) for query in range(queries)],
        qrels=[("dev" if query % 4 == 0 else "train", f"q{query}", ids[3 * query], 1) for query in range(queries)],
    )


def write_parts(
    place: Place,
    *,
    docs: Sequence[tuple[str, str, str]],
    queries: Sequence[tuple[str, str]],
    qrels: Sequence[tuple[str, str, str, int]],
) -> Artifact:
    for number, first in enumerate(range(0, len(docs), SHARD)):
        table = _table(docs[first : first + SHARD], ["doc_id", "title", "text"])
        _write(place / "docs" / f"{number:05d}.parquet", table)
    _write(place / "queries.parquet", _table(queries, ["query_id", "text"]))
    judged = _table(qrels, ["split", "query_id", "doc_id", "grade"])
    _write(place / "qrels.parquet", judged.set_column(3, "grade", judged["grade"].cast(pa.int32())))
    facts = {"name": "words", "passages": len(docs), "splits_made_here": [], "split_rule": "made up"}
    return Artifact(place, {"fingerprint": "corpus", "result": facts})


def texts_of(corpus: Artifact, *, titles: bool = False) -> dict[str, str]:
    """Passage -> its text, behind its title if asked for, in the order of the collection."""
    tables = [read_table(corpus.place / "docs" / name) for name in (corpus.place / "docs").names()]
    rows = [row for table in tables for row in table.to_pylist()]
    return {row["doc_id"]: f"{row['title']} {row['text']}" if titles else row["text"] for row in rows}


def _table(rows: Sequence[tuple[object, ...]], names: list[str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], names=names)


def _write(place: Place, table: pa.Table) -> None:
    with place.writing() as stream:
        pq.write_table(table, stream, row_group_size=GROUP)


def write_tokens(place: Place, corpus: Artifact) -> Artifact:
    """The real tokenising step, its passages then cut into smaller row groups."""
    result = tokenise(TokensConfig(vocabulary_size=400, max_length=32, query_length=8), {"corpus": corpus}, place)
    for name in (place / "passages").names():
        with (place / "passages" / name).reading() as stream:
            table = pq.read_table(stream)
        _write(place / "passages" / name, table)
    return Artifact(place, {"fingerprint": "tokens", "result": result})


def write_model(place: Place, vocabulary: int) -> Artifact:
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=vocabulary, initializer_range=0.3, **sizes), add_pooling_layer=False)
    folder = Path(place.uri.removeprefix("file://")) / "model"
    model.save_pretrained(folder)
    return Artifact(place, {"fingerprint": "encoder", "result": {}})


def made(step: Step, config: Config, inputs: Mapping[str, Artifact], place: Place) -> Artifact:
    """What a step makes, as an input of the next one."""
    return Artifact(place, {"fingerprint": place.uri, "result": step(config, inputs, place)})


def encoded(inputs: Mapping[str, Artifact], root: Place, step: Step = encode, **wanted: Any) -> dict[str, Artifact]:
    """Inputs of a search: passages and queries (train, with a relevant passage, unless `wanted` says otherwise)."""
    queries = {"split": "train", "judged": "relevant", **wanted}
    return {
        "passages": made(step, EncodeConfig(side="passages"), inputs, root / "passages"),
        "queries": made(step, EncodeConfig(side="queries", **queries), inputs, root / "queries"),
        "tokens": inputs["tokens"],
    }


def with_index(
    vectors: Mapping[str, Artifact], root: Place, config: IndexConfig, search_config: SearchConfig, queries: int = 256
) -> dict[str, Artifact]:
    """Inputs of an approximate search: an index of the passages, and the exact search of a sample of the queries."""
    sample = made(draw_sample, SampleConfig(queries=queries), vectors, root / "sample")
    exact = search_config.model_copy(update=IndexFields().model_dump())
    return {
        **vectors,
        "index": made(build_index, config, vectors, root / "index"),
        "exact": made(search_in_parts, exact, {**vectors, "queries": sample}, root / "exact"),
    }


def ranking(inputs: Mapping[str, Artifact], root: Place, depth: int = 25, **wanted: Any) -> Artifact:
    """The ranked list of a split's queries."""
    return made(search, SearchConfig(depth=depth), encoded(inputs, root, **wanted), root / "search")


def write_bi_encoder(place: Place, tokens: Artifact, representation: Representation, **backbone: Any) -> Artifact:
    """A tiny model with random weights that gives the views of a representation."""
    tokenizer = tokens.place.local() / "tokenizer"
    model = build_backbone(BackboneConfig(name="tiny", **backbone), Vocabulary.of(tokenizer), seed=3)
    model.represent_as(representation, seed=4)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():  # larger than fresh ones, so that texts differ
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    (place.local() / "model").mkdir(parents=True)
    save_bi_encoder(model, place.local() / "model", tokenizer, max_length=32)
    return Artifact(place, {"fingerprint": place.uri, "result": {}})


def write_all(root: Place) -> dict[str, Artifact]:
    """Inputs of a mining or evaluation step: corpus, tokens, model."""
    corpus = write_corpus(root / "corpus")
    tokens = write_tokens(root / "tokens", corpus)
    return {"corpus": corpus, "tokens": tokens, "model": write_model(root / "encoder", tokens.result["vocabulary"])}


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Corpus, tokens and a random encoder."""
    return write_all(Place(str(tmp_path_factory.mktemp("collection"))))


@pytest.fixture
def out(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "out"))


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
