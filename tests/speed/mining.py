"""Mining hard negatives against sentence-transformers' `mine_hard_negatives`: the same folder, queries and passages.

    python -m tests.speed.mining [--queries 10000] [--passages N] [--threads 2] [--cpu-time]

A mini backbone (4 layers, width 256) with random weights and unit [CLS] vectors, on SQuAD: the train queries over all
20,958 passages, texts of at most 128 tokens, 30 negatives of the best ranks among 100. The first call tokenises (all
98,000 queries of the collection), encodes, searches and chooses, looks for near-duplicates and writes its audit. A
second call asks for another depth, for another count, or for a margin; it finds what the first has left, as steps do.
sentence-transformers begins again each time, or, with its `cache_folder`, keeps embeddings too; it needs the package
`datasets`. Both take the best of the same lists, so their negatives are compared.
"""

import argparse
import contextlib
import importlib
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig, prepare
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Representation
from midmask.mining.filters import FilterConfig
from midmask.mining.mine import MineConfig, mine
from midmask.mining.near_duplicates import NEAR_DUPLICATES, NearDuplicatesConfig
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.search import SearchConfig, search
from midmask.tokens import TokensConfig, tokenise
from midmask.vocabulary import Vocabulary
from tests.support.retrieve.collection import made

SQUAD = Path(__file__).resolve().parents[3] / "shared" / "data" / "squad"
LENGTH, DEPTH, NEGATIVES = 128, 100, 30
FIRST_GOAL, SECOND_GOAL = 1.4, 20.0


class Ours:
    """The steps of mining; each is made once, and found again by whoever needs it next."""

    def __init__(self, root: Place, corpus: Artifact, model: Artifact, options: argparse.Namespace) -> None:
        self._root, self._inputs, self._options = root, {"corpus": corpus, "model": model}, options
        self.made: dict[str, Artifact] = {}
        self.seconds: dict[str, float] = {}

    def _step(self, name: str, step: Any, config: Any, inputs: dict[str, Artifact]) -> Artifact:
        if name not in self.made:
            start = self._options.clock()
            self.made[name] = made(step, config, inputs, self._root / name)
            self.seconds[name] = self._options.clock() - start
        return self.made[name]

    def mine(self, config: MineConfig) -> Artifact:
        """The artifact of a mining, whose other steps are made as they are needed."""
        threads, corpus = self._options.threads, self._inputs["corpus"]
        words = TokensConfig(tokenizer=self._options.tokenizer, max_length=LENGTH, query_length=LENGTH)
        tokens = self._step("tokens", tokenise, words, {"corpus": corpus})
        inputs = {**self._inputs, "tokens": tokens}
        passages = self._step("passages", encode, EncodeConfig(side="passages", threads=threads), inputs)
        asked = EncodeConfig(
            side="queries", split="train", judged="relevant", max_queries=config.max_queries, threads=threads
        )
        queries = self._step("queries", encode, asked, inputs)
        found = {"passages": passages, "queries": queries, "tokens": tokens}
        listed = self._step(f"search{config.depth}", search, SearchConfig(depth=config.depth, threads=threads), found)
        alike = self._step("near_duplicates", NEAR_DUPLICATES, NearDuplicatesConfig(), {"corpus": corpus})
        last = {"ranked": listed, "corpus": corpus, "near_duplicates": alike}
        return made(mine, config, last, self._root / f"mine{len(self.made)}-{time.monotonic_ns()}")


class Theirs:
    """sentence-transformers on the same queries and passages."""

    def __init__(self, folder: Path, corpus: Place, query_ids: list[str]) -> None:
        Dataset = importlib.import_module("datasets").Dataset
        from sentence_transformers import SentenceTransformer

        docs = {
            row["doc_id"]: row["text"]
            for name in (corpus / "docs").names()
            for row in pq.read_table((corpus / "docs" / name).uri).to_pylist()
        }
        self.doc_of = {text: doc_id for doc_id, text in docs.items()}
        queries = pq.read_table((corpus / "queries.parquet").uri)
        texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
        self.query_of = {texts[query_id]: query_id for query_id in query_ids}
        qrels = pq.read_table((corpus / "qrels.parquet").uri)
        pairs = [
            (texts[row["query_id"]], docs[row["doc_id"]])
            for row in qrels.filter(pc.equal(qrels["split"], "train")).to_pylist()
            if row["query_id"] in texts and texts[row["query_id"]] in self.query_of
        ]
        self._data = Dataset.from_dict({"query": [query for query, _ in pairs], "answer": [doc for _, doc in pairs]})
        self._texts = list(docs.values())
        self._model = SentenceTransformer(str(folder), device="cpu")

    def mine(self, cache: str | None = None) -> dict[str, list[str]]:
        """The negatives of each query, best first."""
        from sentence_transformers.util import mine_hard_negatives

        with contextlib.redirect_stderr(io.StringIO()):
            found = mine_hard_negatives(
                self._data,
                self._model,
                corpus=self._texts,
                range_max=DEPTH,
                num_negatives=NEGATIVES,
                sampling_strategy="top",
                output_format="n-tuple",
                use_faiss=True,
                batch_size=32,
                cache_folder=cache,
                verbose=False,
            )
        columns = [found[f"negative_{number}"] for number in range(1, NEGATIVES + 1)]
        return {
            self.query_of[query]: [self.doc_of[text] for text in texts]
            for query, *texts in zip(found["query"], *columns, strict=True)
        }


def same_lists(ours: Artifact, theirs: dict[str, list[str]]) -> float:
    """The share of queries whose negatives are the same passages."""
    own: dict[str, set[str]] = {}
    for row in pq.read_table((ours.place / "negatives.parquet").uri, columns=["query_id", "doc_id"]).to_pylist():
        own.setdefault(row["query_id"], set()).add(row["doc_id"])
    return sum(own.get(query) == set(docs) for query, docs in theirs.items()) / len(theirs)


def prepared(root: Path, options: argparse.Namespace) -> tuple[Artifact, Artifact]:
    """Corpus and model, and in options.tokenizer a tokenizer: what both sides are given."""
    corpus = made(
        prepare, CorpusConfig(name=f"beir:{SQUAD}", max_passages=options.passages), {}, Place(str(root / "corpus"))
    )
    made(tokenise, TokensConfig(), {"corpus": corpus}, Place(str(root / "first")))
    options.tokenizer = str(root / "first" / "tokenizer")
    backbone = build_backbone(BackboneConfig(name="mini"), Vocabulary.of(Path(options.tokenizer)), seed=0)
    backbone.represent_as(Representation(normalise=True), seed=0)
    save_bi_encoder(backbone, root / "model", Path(options.tokenizer), max_length=LENGTH)
    return corpus, Artifact(Place(str(root / "model")), {"fingerprint": "mini", "result": {}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--passages", type=int, help="fewer, for a look")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: processor time of one thread")
    options = parser.parse_args()
    options.threads = 1 if options.cpu_time else options.threads
    torch.set_num_threads(options.threads)
    options.clock = time.process_time if options.cpu_time else time.perf_counter

    def timed(work: Callable[[], Any]) -> tuple[Any, float]:
        start = options.clock()
        return work(), options.clock() - start

    copies = FilterConfig(near_duplicates=1.0)
    top = MineConfig(depth=DEPTH, per_query=NEGATIVES, choose="top", max_queries=options.queries, filters=copies)
    second_calls = {
        "another depth": top.model_copy(update={"depth": 60, "per_query": 20}),
        "another count": top.model_copy(update={"per_query": 10}),
        "a margin": top.model_copy(update={"filters": FilterConfig(near_duplicates=1.0, relative_margin=0.05)}),
    }
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        corpus, model = prepared(root, options)
        ours = Ours(Place(name), corpus, model, options)
        first, own = timed(lambda: ours.mine(top))
        query_ids = pq.read_table((ours.made["queries"].place / "selection.parquet").uri)["query_id"].to_pylist()
        theirs = Theirs(root / "model", corpus.place, query_ids)
        listed, other = timed(theirs.mine)
        theirs.mine(cache=str(root / "cache"))
        _, cached = timed(lambda: theirs.mine(cache=str(root / "cache")))
        parts = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in ours.seconds.items())
        print(f"first call: {own:.1f} s against {other:.1f} s, {other / own:.2f} times (goal {FIRST_GOAL}); {parts}")
        rows = own - ours.seconds["tokens"]
        print(f"from token rows, which training has made before: {rows:.1f} s, {other / rows:.2f} times")
        print(f"{same_lists(first, listed):.1%} of {len(listed)} queries have the same {NEGATIVES} negatives")
        for what, config in second_calls.items():
            _, again = timed(lambda config=config: ours.mine(config))
            print(
                f"{what}: {again:.2f} s, {other / again:.1f} times (goal {SECOND_GOAL:g}), "
                f"{cached / again:.1f} times its own second call with cached embeddings ({cached:.1f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
