"""Texts of tokens."""

from midmask.artifact import Artifact
from midmask.training.table import read_table


def texts_of(inputs: dict[str, Artifact]) -> tuple[dict[str, str], dict[str, str]]:
    """Query id -> text, passage id -> text."""
    corpus = inputs["corpus"].place
    queries = read_table(corpus / "queries.parquet")
    docs = [read_table(corpus / "docs" / name) for name in (corpus / "docs").names()]
    passages = {row["doc_id"]: row["text"] for table in docs for row in table.to_pylist()}
    return dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True)), passages
