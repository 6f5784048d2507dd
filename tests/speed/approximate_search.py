"""Approximate indexes against the exact search of the same vectors: recall, time and bytes, each as a share of exact.

    python -m tests.speed.approximate_search --corpus ../shared/data/wiki/corpus.jsonl.gz \\
        [--encoded 120565] [--passages 1000000] [--queries 256] [--threads 2] [--vectors FILE.npy]

The vectors are synthetic. The first `--encoded` passages are encoded by MiniLM at 64 tokens (`--vectors` keeps them).
Each of the `--passages` vectors is a passage's, mixed with a share of 0 to 0.4 of another one's, plus noise of length
0.2, at length 1; so is each query, from other draws. They have an encoder's spread and clusters, but no real queries.

Every index is timed against the exact search of a shard (`DenseShard`) in turn in one process, all queries in one batch
to depth 100. A ratio is the median over rounds of exact seconds over the index's seconds.
"""

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from midmask.arrays import Floats
from midmask.pretrained import model_folder
from midmask.retrieve.coded import CodedShard
from midmask.retrieve.dense import DenseShard, load_faiss
from midmask.retrieve.index import IndexConfig, IndexFields, build_faiss_index, set_search_parameters
from midmask.retrieve.index_training import VectorBlocks

DEPTH, ROUNDS, TOKENS, BLOCK = 100, 5, 64, 100_000
SHARE, NOISE = 0.4, 0.2


def indexes(passages: int) -> list[IndexFields]:
    """As many lists as four times the root of the passages, the usual choice, rounded to a power of 2."""
    lists = 2 ** round(np.log2(4 * passages**0.5))
    ivf = f"IVF{lists}"
    return [
        *(IndexFields(index=f"{ivf},Flat", nprobe=max(1, lists // part)) for part in (128, 64, 32, 16)),
        IndexFields(index="SQ8", rescore=0),
        IndexFields(index="SQ4", rescore=0),
        IndexFields(index=f"{ivf},SQ4", nprobe=max(1, lists // 32), rescore=0),
        IndexFields(index=f"{ivf},PQ64", nprobe=max(1, lists // 32), rescore=0),
        IndexFields(index=f"{ivf},PQ64", nprobe=max(1, lists // 32), rescore=4),
        IndexFields(index="HNSW32", ef_search=128),
        IndexFields(index="HNSW32", ef_search=256),
    ]


def encode(corpus: Path, count: int, threads: int) -> Floats:
    """MiniLM's vectors of the first passages, [count, 384], of length 1."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    with gzip.open(corpus, "rt") as stream:
        rows = [json.loads(line) for line in islice(stream, count)]
    model = SentenceTransformer(str(model_folder("minilm", field="minilm")), device="cpu")
    model.max_seq_length = TOKENS
    texts = [f"{row.get('title', '')} {row['text']}".strip() for row in rows]
    return np.asarray(model.encode(texts, batch_size=64, normalize_embeddings=True), dtype=np.float32)


def enlarge(base_ND: Floats, count: int, draw: np.random.Generator) -> Iterator[Floats]:
    """Blocks of mixed vectors with noise, `count` in all."""
    for start in range(0, count, BLOCK):
        rows = min(BLOCK, count - start)
        first, second = draw.integers(0, len(base_ND), (2, rows))
        share = draw.uniform(0, SHARE, (rows, 1)).astype(np.float32)
        noise = draw.standard_normal((rows, base_ND.shape[1])).astype(np.float32) * (NOISE / base_ND.shape[1] ** 0.5)
        mixed = (1 - share) * base_ND[first] + share * base_ND[second] + noise
        yield mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


def seconds_of(shard: DenseShard | CodedShard, queries_QD: Floats) -> tuple[float, np.ndarray]:
    started = time.perf_counter()
    rows = shard.search(queries_QD, DEPTH)[1]
    return time.perf_counter() - started, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--encoded", type=int, default=120_565)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vectors", type=Path)
    flags = parser.parse_args()
    if flags.vectors and flags.vectors.exists():
        base_ND = np.load(flags.vectors)
    else:
        base_ND = encode(flags.corpus, flags.encoded, flags.threads)
        if flags.vectors:
            np.save(flags.vectors, base_ND)
    draw = np.random.default_rng(0)
    blocks, queries_QD = list(enlarge(base_ND, flags.passages, draw)), next(enlarge(base_ND, flags.queries, draw))
    doc_ids = pa.chunked_array([[f"{row:08d}" for row in range(flags.passages)]])
    exact = DenseShard(blocks, doc_ids, threads=flags.threads)
    print(f"{flags.passages:,} synthetic vectors from {len(base_ND):,} passages, width {base_ND.shape[1]}", flush=True)
    print("index | recall@10 | recall@100 | times as fast | bytes of exact | build s", flush=True)
    for factory, alike in groupby(indexes(flags.passages), key=lambda fields: fields.index):
        started = time.perf_counter()
        index = build_faiss_index(VectorBlocks.of(*blocks), IndexConfig(index=factory, threads=flags.threads))
        built = time.perf_counter() - started
        for fields in alike:
            line = compare(fields, index, exact, blocks, queries_QD, flags.threads)
            print(f"{line} | {built:.0f}", flush=True)


def compare(
    fields: IndexFields, index: Any, exact: DenseShard, blocks: list[Floats], queries_QD: Floats, threads: int
) -> str:
    """Times an index in turn with the exact search; its line."""
    set_search_parameters(index, fields, DEPTH)
    doc_ids = exact.doc_ids
    size, vectors = len(load_faiss().serialize_index(index)), sum(block.nbytes for block in blocks)
    shard = (
        DenseShard(blocks, doc_ids, index=index, rescore=fields.rescore, threads=threads)
        if fields.rescore
        else CodedShard(index, doc_ids, threads=threads)
    )
    ratios = []
    for _ in range(1 + ROUNDS):  # the first warms the memory
        (slow, best_QK), (fast, found_QK) = seconds_of(exact, queries_QD), seconds_of(shard, queries_QD)
        ratios.append(slow / fast)
    recalls = [
        np.mean([len(set(one[:k]) & set(other[:k])) / k for one, other in zip(best_QK, found_QK, strict=True)])
        for k in (10, DEPTH)
    ]
    searched = size + (vectors if fields.rescore else 0)
    given = " ".join(f"{name} {value}" for name, value in fields.model_dump(exclude_defaults=True).items())
    shares = " | ".join(f"{recall:.4f}" for recall in recalls)
    return f"{given} | {shares} | {statistics.median(ratios[1:]):.1f} | {searched / vectors:.3f}"


if __name__ == "__main__":
    main()
