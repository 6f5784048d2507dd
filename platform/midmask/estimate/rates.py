"""Measured rates and sizes: bytes that steps leave in the storage, and what steps without a model take of CPU cores.

storage        what is compressed (texts, token rows, ranked lists) is taken as measured on SQuAD's passages; what is
               not (vectors, weights, AdamW's moments) follows from its shape
cores          how many texts steps without a model read, how fast, and what they write

What searches take: postings that BM25 touches, what indexes learn, and their memory, on the host and on each GPU.

BM25           words are counted and scored a shard at a time; a query adds up the scores of all passages that have one
               of its words, on as many cores as there are workers; the index is mapped, so that it takes no memory, but
               each passage's id does
dense          vectors in a faiss index: in the host's memory, and if there are GPUs a copy, each with its share
lexical        all entries unpacked in the host's memory
late           a product of codes for each token of a query with each of its candidates' tokens, on CPU cores; vectors
               are mapped, so an index takes no memory
"""

import re
from typing import Any

from midmask.encoders.representation import Representation
from midmask.estimate.sizes import Sizes
from midmask.estimate.volumes import Volumes
from midmask.experiment.graph import Step
from midmask.retrieve.views import record_type
from midmask.training.checkpoint import KEPT

TEXT_BYTES = 0.6  # bytes a character of a prepared text, zstd
TOKEN_BYTES = 1.6  # bytes a token of a token row, zstd
RANKED_BYTES = 7  # bytes a row of a ranked list
RUN_BYTES = 11  # bytes a row of a TREC run file, gzip
NEGATIVE_BYTES = 14  # bytes a mined negative
PAIR_BYTES = 30  # bytes a scored pair, with its candidate
BM25_WORDS = 0.28  # bytes a character of a text in BM25's counted words
BM25_INDEX = 0.93  # bytes a character of a text in BM25's index
NEAR_DUPLICATES = 0.55  # bytes a character of a text in what tells near-duplicates
QUERY_BYTES = 60  # bytes a query with its judgements, zstd
TRACE_BYTES = 60  # bytes a row of a trace, and of a step besides
WORD_BITS = 32 + 15
"""Bits of an entry of a lexical vector, as `retrieve` packs it."""

TEXT_LENGTH = 4
"""Bytes of a text's number of token vectors, as `retrieve` stores it."""

WHOLE, STATE = 4, 12
"""Bytes a parameter: of a model, and of a checkpoint (weights and both moments)."""


def vector_bytes(representation: Representation, sizes: Sizes, *, terms: float, tokens: float) -> float:
    """Bytes of one text's vectors.

    Args:
        terms: words of its lexical view, if it has one. tokens: of the text, specials included.
    """
    if representation.tokens is not None:
        return record_type(representation.tokens).itemsize * tokens + TEXT_LENGTH
    dense = 4 * (representation.width or sizes.width) if representation.dense else 0
    return dense + (WORD_BITS / 8 * terms if representation.lexical else 0)


def training_bytes(parameters: int, *, steps: int, rows: int, state_stays: bool) -> float:
    """Bytes of a finished training: model and heads, the trace, and the state to go on from, if it stays."""
    return WHOLE * parameters + STATE * parameters * state_stays + trace_bytes(steps, rows)


def trace_bytes(steps: int, rows: int) -> float:
    return steps * (TRACE_BYTES + 4 * rows)


def checkpoint_bytes(parameters: int) -> float:
    """Bytes while a training runs: the checkpoints that are kept, and the one that is being written."""
    return (KEPT + 1) * STATE * parameters


VOCABULARY_PER_SECOND = 2_000
"""Passages from which a core trains a tokenizer in a second."""
SENTENCES = 5
"""Sentences of a passage, where its pseudo-queries are not made yet."""


def vocabulary_seconds(step: Step, volumes: Volumes) -> float:
    """Seconds of the process that trains a tokenizer, if this step does."""
    config: Any = step.config
    if step.name != "tokenise" or config.tokenizer is not None or "like" in step.inputs:
        return 0.0
    most: int = config.vocabulary_passages
    return min(volumes.texts(step).volume.passages, most) / VOCABULARY_PER_SECOND


def bm25_size(step: Step, volumes: Volumes) -> tuple[int, int]:
    """Numbers of passages and queries of a step `bm25`."""
    config: Any = step.config
    volume = volumes.corpus(step.inputs["corpus"])
    if "asked" in step.inputs:
        return volume.passages, count_pairs(step.inputs["asked"], volumes)
    return volume.passages, sum(volume.of_split(split, config.max_queries) for split in config.splits)


def count_pairs(listed: Step, volumes: Volumes) -> int:
    """Queries of a step `list_pairs`: from the record of the pseudo-queries, or guessed by their source."""
    pairs = listed.inputs["pairs"]
    if (done := volumes.find_finished(pairs)) is not None:
        return int(done.result["queries"])
    config: Any = pairs.config
    each: int = {"sentences": SENTENCES, "neighbours": 2, "model": config.per_passage}.get(config.kind, 1)
    return each * volumes.texts(pairs.inputs["tokens"]).volume.passages


def read_and_written(step: Step, volumes: Volumes) -> tuple[float, float]:
    """The texts that a step reads, and the bytes that it writes."""
    config: Any = step.config
    if step.name in ("prepare", "join"):
        volume = volumes.corpus(step)
        characters = volume.passages * volume.mean_characters
        return volume.passages + volume.queries, TEXT_BYTES * characters + QUERY_BYTES * volume.queries
    if step.name in ("tokenise", "read_tokens"):
        texts = volumes.texts(step)
        passages, queries = texts.volume.passages, texts.volume.queries
        return passages + queries, TOKEN_BYTES * (passages * texts.tokens + queries * texts.query_tokens)
    if step.name in ("spans", "pseudo_queries", "statistics", "weigh"):
        texts = volumes.texts(step.inputs["tokens"])
        return texts.volume.passages, 4 * texts.tokens * texts.volume.passages
    if step.name in ("list_pairs", "keep_pairs"):
        return read_and_written(step.inputs["pairs"], volumes)
    if step.name == "fuse":
        _, queries = bm25_size(step.inputs["bm25"], volumes)
        return queries, RANKED_BYTES * queries * config.depth
    if step.name == "bm25_index":
        counted, size = read_and_written(step.inputs["words"], volumes)
        return counted, size * BM25_INDEX / BM25_WORDS
    return _corpus_work(step, volumes, config) if "corpus" in step.inputs else (0.0, 0.0)


def _corpus_work(step: Step, volumes: Volumes, config: Any) -> tuple[float, float]:
    volume = volumes.corpus(step.inputs["corpus"])
    characters = volume.passages * volume.mean_characters
    if step.name == "queries":
        return volume.passages, TEXT_BYTES * characters + QUERY_BYTES * config.max_queries
    if step.name == "near_duplicates":
        return volume.passages, NEAR_DUPLICATES * characters
    if step.name == "bm25_words":
        return volume.passages, BM25_WORDS * characters
    if step.name == "bm25":
        passages, queries = bm25_size(step, volumes)
        return passages, RANKED_BYTES * queries * min(config.depth, passages)
    queries = volume.of_split(getattr(config, "split", "train"), getattr(config, "max_queries", None))
    ranked = queries * min(getattr(config, "depth", 0), volume.passages)
    return queries, RUN_BYTES * ranked if step.name == "evaluate" else NEGATIVE_BYTES * queries * getattr(
        config, "per_query", 1
    )


BM25_ID_BYTES = 100
"""Bytes of host memory for each passage while BM25 searches: its id and its place among the sorted ids, once for the
workers together and once where their lists are merged, and while the ids are sorted."""
BM25_SHARD_BYTES = 260e6
"""Bytes of host memory for each process that counts and scores words, a shard of 16,384 passages at a time: measured
beside its libraries with passages of 113 words, 200 MB for the first shard and 258 after seven."""
BM25_PASSAGES_PER_SECOND = 1.7e8
"""Passages times queries that a core scores in a second: measured 5.8 ns for a passage with 2,048 questions of SQuAD
over a million passages, those of the wiki set nine times (docs/results/benchmarks.md); a core's cache holds the
scores of a shard."""
CODES_PER_SECOND = 5e9
"""Products of two codes that a core adds up in a second, unpacking and maxima included: measured 4.1e9 where 64 queries
of 14 tokens have 200 candidates each among 4,096 passages of 94 tokens, and 8.7e9 where all of them are scored."""
ENTRY_BYTES = 8
"""Bytes of an entry of a lexical view: its word and its weight."""
INDEX_FLOPS_PER_SECOND = 5.7e10
"""FLOP/s of a core that builds a faiss index: measured with IVF4096,Flat of a million vectors of width 384, two threads
(docs/results/benchmarks.md, 99 s)."""
CENTRE_ROWS = 256
"""Vectors for each centre of a clustering, from which faiss learns at most."""
LIST_ROUNDS, CODE_ROUNDS, ROTATION_ROUNDS = 10, 25, 40 + 50 * 4
"""Rounds of k-means for IVF's lists, for PQ's codes, and for the codes that OPQ's rotation is fitted to."""
GRAPH_FACTOR = 4.5
"""How many times as long a comparison takes while HNSW's graph is built as one with a centre: measured 150 to 160
microseconds of a core for each of 200,000 vectors of width 384 in HNSW32."""
EF_CONSTRUCTION = 40
"""Candidates that faiss keeps while it builds a graph, by default."""
LINK_BYTES = 8
"""Bytes of an id, or of a link of HNSW's graph, of which a vector has twice as many as the factory string says."""


def bm25_seconds(queries: float, passages: float) -> float:
    """Seconds of one core for BM25 scores."""
    return queries * passages / BM25_PASSAGES_PER_SECOND


def maxsim_seconds(token_pairs: float, width: int) -> float:
    """Seconds of one core for the products of so many pairs of 8-bit token vectors; width 0: there are none."""
    return token_pairs * width / CODES_PER_SECOND


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


def index_flops(factory: str, *, width: int, passages: int, rows: int, candidates: int = EF_CONSTRUCTION) -> float:
    """FLOPs of building an index: vectors are compared with centres, in learning IVF's lists and PQ's codes and
    in adding all vectors, or with each other in HNSW's graph.

    Args:
        rows: vectors that it learns from. candidates: of a graph that is built.
    """
    flops = 0.0
    if lists := re.search(r"IVF(\d+)", factory):
        count = int(lists[1])
        flops += 2.0 * width * count * (LIST_ROUNDS * min(rows, CENTRE_ROWS * count) + passages)
    if product := re.search(r"(?<!O)PQ\d+(?:x(\d+))?", factory):
        codes = 2 ** int(product[1] or 8)
        rounds = CODE_ROUNDS + ROTATION_ROUNDS * ("OPQ" in factory)
        flops += 2.0 * width * codes * (rounds * min(rows, CENTRE_ROWS * codes) + passages)
    if graph := re.search(r"^HNSW(\d+)", factory):
        flops += GRAPH_FACTOR * 2.0 * width * candidates * 2 * int(graph[1]) * passages
    return flops


def index_bytes(factory: str, *, width: int, terms: float) -> tuple[float, float]:
    """Bytes of one passage in the host's memory, and of these the bytes that a copy on a GPU takes.

    Args:
        width: of the dense view that is searched; 0: none. terms: words of the lexical view; 0: none.
    """
    vector = dense_bytes(factory, width) if width else 0.0
    return vector + ENTRY_BYTES * terms, 0.0 if "HNSW" in factory else vector
