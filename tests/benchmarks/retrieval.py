"""Encoding and searching, over made-up texts and vectors, against the libraries that do the same."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from bm25s.selection import topk
from scipy import sparse

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Representation
from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.text_encoder import open_encoder
from midmask.retrieve.views import Views
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from tests.benchmarks.harness import Bench
from tests.support.retrieve.collection import write_parts

LENGTH, ROWS = 128, 2048


def made_up_texts(count: int, longest: int = 150) -> list[str]:
    """Of 20 words or more, frequent ones more often."""
    draw = np.random.default_rng(0)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = np.array(["".join(draw.choice(letters, draw.integers(2, 9))) for _ in range(3000)])
    return [" ".join(words[draw.zipf(1.3, draw.integers(20, longest)) % len(words)]) for _ in range(count)]


def encoding(bench: Bench) -> None:
    """Vectors of `mini` from texts, and from token rows as in a run, against sentence-transformers' `encode`."""
    from sentence_transformers import SentenceTransformer

    texts = made_up_texts(bench.size(2000, 40))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        docs = [(str(row), "", text) for row, text in enumerate(texts)]
        corpus = write_parts(Place(f"{name}/corpus"), docs=docs, queries=[("q", "a")], qrels=[("dev", "q", "0", 1)])
        tokenise(TokensConfig(vocabulary_size=8000), {"corpus": corpus}, Place(name))
        vocabulary, tokenizer = Vocabulary.of(folder / "tokenizer"), load_tokenizer(folder / "tokenizer")

        def token_rows() -> list[np.ndarray]:
            found = tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
            return [np.array(row, dtype=np.int32) for row in found]

        kept = token_rows()
        for pooling, goal in {"cls": 1.5, "mean": 1.2}.items():
            backbone = build_backbone(BackboneConfig(name="mini"), vocabulary, seed=0)
            backbone.represent_as(Representation(dense=pooling), seed=0)
            save_bi_encoder(backbone, folder / pooling, folder / "tokenizer", max_length=LENGTH)
            other = SentenceTransformer(str(folder / pooling), device="cpu")
            encoder = open_encoder(folder / pooling, vocabulary, "passage")

            def ours(rows: list[np.ndarray], encoder=encoder) -> np.ndarray:
                blocks = (rows[at : at + ROWS] for at in range(0, len(rows), ROWS))
                return np.concatenate([encoder.encode(block).dense_ND for block in blocks])

            def theirs(other=other) -> np.ndarray:
                return other.encode(texts, batch_size=32, show_progress_bar=False)

            bench.say(f"{pooling}: vectors at most {np.abs(ours(kept) - theirs()).max():.1e} apart, goal 1e-5")
            for what, work in (("token rows", lambda: ours(kept)), ("texts", lambda: ours(token_rows()))):
                bench.compare(f"{pooling}, from {what}", work, theirs, goal=goal, rival="sentence-transformers")


V = 30_522


def lexical(bench: Bench) -> None:
    """Exact lexical search, one thread, against scipy's sparse product and against bm25s-style scoring, on made-up rows
    of 160 words a passage and 30 a query, on which a query touches as many postings as with SPLADE's; all must find the
    same scores.
    """
    passages, queries = (words(*each) for each in ((bench.size(113_000, 2000), 160), (bench.size(200, 20), 30)))
    ids = pa.chunked_array([[f"w{row * 7919 % 1_000_003}" for row in range(passages.shape[0])]])
    shard, rows, lists = LexicalShard(passages, ids), Views(None, queries), passages.tocsc()
    by_term = passages.T.tocsr()

    def scipy(k: int) -> list[np.ndarray]:
        products = (queries[at : at + 64] @ by_term for at in range(0, queries.shape[0], 64))
        return [best(one.data[a:b], k) for one in products for a, b in zip(one.indptr, one.indptr[1:], strict=False)]

    def scored(query: slice) -> np.ndarray:
        edges = [slice(*lists.indptr[term : term + 2]) for term in queries.indices[query]]
        weighted = [lists.data[edge] * weight for edge, weight in zip(edges, queries.data[query], strict=True)]
        scores_N = np.zeros(passages.shape[0], dtype=np.float32)
        np.add.at(scores_N, np.concatenate([lists.indices[edge] for edge in edges]), np.concatenate(weighted))
        return scores_N

    def bm25s(k: int) -> list[np.ndarray]:
        return [topk(scored(part), k, backend="numpy")[0] for part in map(slice, queries.indptr, queries.indptr[1:])]

    for k in (1000, 100):
        found = list(shard.search(rows, k)[0])
        for name, rival in (("scipy", scipy), ("bm25s", bm25s)):
            for ours_K, theirs_K in zip(found, rival(k), strict=True):
                np.testing.assert_allclose(ours_K[: len(theirs_K)], theirs_K, rtol=1e-4, atol=1e-3)
            works = partial(shard.search, rows, k), partial(rival, k)
            bench.compare(f"k = {k}", *works, goal=1, rival=name)


def words(rows: int, count: int) -> sparse.csr_array:
    """Rows of about so many words, frequent ones more often, with logarithmic weights as SPLADE's."""
    draw = np.random.default_rng(rows)
    edges_V = (1 / np.arange(30, V + 30)).cumsum()
    columns = np.searchsorted(edges_V, draw.random((rows, count)) * edges_V[-1])
    weights = np.log1p(draw.exponential(1, (rows, count))).astype(np.float32)
    table = sparse.csr_array((weights.ravel(), (np.repeat(np.arange(rows), count), columns.ravel())), shape=(rows, V))
    table.sum_duplicates()
    arrays = table.data, table.indices.astype(np.int32), table.indptr.astype(np.int32)  # as rows of a file
    return sparse.csr_array(arrays, shape=table.shape)


def best(scores: np.ndarray, k: int) -> np.ndarray:
    k = min(k, len(scores))
    return np.sort(np.partition(scores, len(scores) - k)[len(scores) - k :])[::-1]
