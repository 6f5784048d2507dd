"""The official MS MARCO passage layout: `collection.tsv`, `queries.SPLIT.tsv`, `qrels.SPLIT.tsv`, each plain or .gz.

Collection and queries have two columns, id and text, divided by a tab. `qrels.dev.small.tsv` and
`queries.dev.small.tsv` are the split dev; a folder that holds the full dev too must name which one it means.
"""

from midmask.artifact import Place
from midmask.corpora.corpus import Corpus, found, split_names, text_pieces
from midmask.corpora.qrels import qrel_pieces
from midmask.errors import UserError

LAYOUT = "collection.tsv[.gz], queries.SPLIT.tsv[.gz], qrels.SPLIT.tsv[.gz] with SPLIT train, dev or test"


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line; the collection has no titles."""
    doc_id, passage = text.split("\t")
    return doc_id.strip(), "", passage


def parse_query(text: str) -> tuple[str, str]:
    """(query_id, text) of one line."""
    query_id, query = text.split("\t")
    return query_id.strip(), query


def open_msmarco(folder: Place, name: str, max_characters: int) -> Corpus:
    """The corpus in a folder of official files.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    limits = {"max_characters": max_characters}
    docs = text_pieces(
        "docs", folder, [found(folder, ["collection.tsv", "collection.tsv.gz"], LAYOUT)], parse_passage, limits
    )
    names = folder.names()
    files = split_names([file for file in names if file.startswith("qrels.")], prefix="qrels")
    queries = sorted(file for file in names if file.startswith("queries.") and file.endswith((".tsv", ".tsv.gz")))
    if bool(files) != bool(queries):
        missing = "qrels.SPLIT.tsv" if queries else "queries.SPLIT.tsv"
        raise UserError(f"{folder}: {missing} is missing; wanted layout: {LAYOUT}")
    return Corpus(
        name, docs, text_pieces("queries", folder, queries, parse_query, limits), qrel_pieces(folder, files, limits)
    )
