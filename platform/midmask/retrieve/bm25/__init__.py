"""BM25 as a system of its own, which has no encoder."""

BM25 = "bm25"
"""Its name, in results, tables and on command lines."""
