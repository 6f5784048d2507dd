"""What searches take: postings that BM25 touches, what indexes learn, and their memory, on the host and on each GPU.

BM25           words are counted and scored a shard at a time; a query adds up the scores of all passages that have one
               of its words, on as many cores as there are workers; the index is mapped, so that it takes no memory, but
               each passage's id does
dense          vectors in a faiss index: in the host's memory, and if there are GPUs a copy, each with its share
lexical        all entries unpacked in the host's memory, and Seismic's index beside them; its searches are reckoned as
               exact ones
late           a product of codes for each token of a query with each of its candidates' tokens, on CPU cores; vectors
               are mapped, so an index takes no memory
"""

import re

from midmask.retrieve.seismic import SEISMIC

BM25_ID_BYTES = 100
"""Of the host's memory for each passage while BM25 searches: its id and its place among the sorted ids, once for the
workers together and once where their lists are merged, and while the ids are sorted."""
BM25_SHARD_BYTES = 260e6
"""Of the host's memory for each process that counts and scores words, a shard of 16,384 passages at a time: measured
beside its libraries with passages of 113 words, 200 MB for the first shard and 258 after seven."""
BM25_PASSAGES_PER_SECOND = 1.7e8
"""Passages times queries that a core scores in a second: measured 5.8 ns for a passage with 2,048 questions of SQuAD
over a million passages, those of the wiki set nine times (docs/results/benchmarks.md); a core's cache holds the
scores of a shard."""
CODES_PER_SECOND = 5e9
"""Products of two codes that a core adds up in a second, unpacking and maxima included: measured 4.1e9 where 64 queries
of 14 tokens have 200 candidates each among 4,096 passages of 94 tokens, and 8.7e9 where all of them are scored."""
ENTRY_BYTES = 8
"""Of an entry of a lexical view: its word and its weight."""
SEISMIC_ENTRY_BYTES = 40
"""Of an entry in Seismic's index: measured 13 to 42, and 100 for weights that are nearly noise."""
INDEX_FLOPS_PER_SECOND = 5.7e10
"""Of a core that builds a faiss index: measured with IVF4096,Flat of a million vectors of width 384 and two threads
(docs/results/benchmarks.md, 99 s)."""
CENTRE_ROWS = 256
"""Vectors for each centre of a clustering, from which faiss learns at most."""
LIST_ROUNDS, CODE_ROUNDS, ROTATION_ROUNDS = 10, 25, 40 + 50 * 4
"""Rounds of k-means for IVF's lists, for PQ's codes, and for the codes that OPQ's rotation is fitted to."""
GRAPH_FACTOR = 4.5
"""How many times as long a comparison takes while HNSW's graph is built as one with a centre: measured 150 to 160
microseconds of a core for each of 200,000 vectors of width 384 in HNSW32."""
EF_CONSTRUCTION = 40
"""Candidates that faiss keeps while it builds a graph, unless it is told otherwise."""
LINK_BYTES = 8
"""Of an id, or of a link of HNSW's graph, of which a vector has twice as many as the factory string says."""


def bm25_seconds(queries: float, passages: float) -> float:
    """Of one core, for scoring."""
    return queries * passages / BM25_PASSAGES_PER_SECOND


def maxsim_seconds(token_pairs: float, width: int) -> float:
    """Of one core, for the products of so many pairs of 8-bit token vectors; width 0: there are none."""
    return token_pairs * width / CODES_PER_SECOND


def dense_bytes(factory: str, width: int) -> float:
    """Of one vector in a faiss index, by its factory string; 4 a dimension where nothing compresses it."""
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
    """What building an index multiplies: vectors are compared with centres, in learning IVF's lists and PQ's codes and
    in adding all vectors, or with each other in HNSW's graph.

    Args:
        rows: vectors that it learns from. candidates: of a graph that is built.
    """
    found = 0.0
    if lists := re.search(r"IVF(\d+)", factory):
        count = int(lists[1])
        found += 2.0 * width * count * (LIST_ROUNDS * min(rows, CENTRE_ROWS * count) + passages)
    if product := re.search(r"(?<!O)PQ\d+(?:x(\d+))?", factory):
        codes = 2 ** int(product[1] or 8)
        rounds = CODE_ROUNDS + ROTATION_ROUNDS * ("OPQ" in factory)
        found += 2.0 * width * codes * (rounds * min(rows, CENTRE_ROWS * codes) + passages)
    if graph := re.search(r"^HNSW(\d+)", factory):
        found += GRAPH_FACTOR * 2.0 * width * candidates * 2 * int(graph[1]) * passages
    return found


def index_bytes(factory: str, *, width: int, terms: float) -> tuple[float, float]:
    """Bytes of one passage in the host's memory, and of these the bytes that a copy on a GPU takes.

    Args:
        width: of the dense view that is searched; 0: none. terms: words of the lexical view; 0: none.
    """
    vector = dense_bytes(factory, width) if width else 0.0
    entry = ENTRY_BYTES + SEISMIC_ENTRY_BYTES * (factory == SEISMIC)
    return vector + entry * terms, 0.0 if "HNSW" in factory else vector
