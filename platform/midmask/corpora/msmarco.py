"""The official MS MARCO passage layout, each file plain or .gz, and TREC Deep Learning's queries beside it.

- `collection.tsv` (id, text), as distributed, without titles. Or with titles: `corpus.tsv` (id, title, text), as
  Tevatron's and RetroMAE's scripts join it from RocketQA's files. They are two corpora: published figures of one are
  not comparable with the other's. A title "-" is none.
- `queries.SPLIT.tsv` (RocketQA: `SPLIT.query.txt`) and `qrels.SPLIT.tsv`. `qrels.dev.small.tsv` is the split dev; a
  folder that holds `qrels.dev.tsv` too must name which one it means.
- `msmarco-test2019-queries.tsv` and `2019qrels-pass.txt` are the split dl19, those of 2020 dl20. Grades are 0 to 3, and
  binary measures count from 2 on: `R(rel=2)@100`. Most of the 200 queries of a year have no judgement.
"""

from midmask.corpora.chunks import check_columns
from midmask.corpora.corpus import CorpusPieces, data_files, find_file, qrel_pieces, split_names, text_pieces
from midmask.corpora.reader import folder_reader
from midmask.errors import UserError
from midmask.store.place import Place

NO_TITLE = "-"
"""What RocketQA's files hold where a page has no title."""


LAYOUT = (
    "collection.tsv[.gz] (or corpus.tsv: id, title, text), queries.SPLIT.tsv[.gz], "
    "qrels.SPLIT.tsv[.gz] with SPLIT train, dev or test; msmarco-test2019-queries.tsv with 2019qrels-pass.txt"
)
DEEP_LEARNING = {"dl19": "2019", "dl20": "2020"}


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line; the collection has no titles."""
    doc_id, passage = check_columns(text.split("\t"), "id", "text")
    return doc_id.strip(), "", passage


def parse_titled(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line of three columns."""
    doc_id, title, passage = check_columns(text.split("\t"), "id", "title", "text")
    return doc_id.strip(), "" if title.strip() == NO_TITLE else title.strip(), passage


def parse_query(text: str) -> tuple[str, str]:
    """(query_id, text) of one line."""
    query_id, query = check_columns(text.split("\t"), "id", "text")
    return query_id.strip(), query


def open_msmarco(folder: Place) -> CorpusPieces:
    """The corpus in a folder of official files."""
    passages = find_file(folder, ["collection.tsv", "corpus.tsv"], LAYOUT)
    parse = parse_titled if passages.startswith("corpus") else parse_passage
    docs = text_pieces("docs", folder, [passages], parse)
    names = data_files(folder)
    files = split_names([file for file in names if file.startswith("qrels.")], prefix="qrels")
    queries = sorted(file for file in names if _holds_queries(file))
    if bool(files) != bool(queries):
        missing = "qrels.SPLIT.tsv" if queries else "queries.SPLIT.tsv"
        raise UserError(f"{folder}: {missing} is missing; wanted layout: {LAYOUT}")
    for split, year in DEEP_LEARNING.items():
        pair = _deep_learning(folder, names, year)
        if pair:
            queries, files = [*queries, pair[0]], {**files, split: pair[1]}
    query_pieces = text_pieces("queries", folder, queries, parse_query)
    return CorpusPieces(docs, query_pieces, qrel_pieces(folder, files))


def _holds_queries(file: str) -> bool:
    name = file.removesuffix(".gz")
    return (name.startswith("queries.") and name.endswith(".tsv")) or name.endswith(".query.txt")


def _deep_learning(folder: Place, names: list[str], year: str) -> tuple[str, str] | None:
    """The year's queries and judgements; the one is refused without the other."""
    expected = [f"msmarco-test{year}-queries.tsv", f"{year}qrels-pass.txt"]
    present = [find_file(folder, [name], LAYOUT, optional=True) for name in expected]
    for name, file, other in zip(expected, present, present[::-1], strict=True):
        if other and not file:
            raise UserError(f"{folder}: {name} is missing, which belongs to {other}; wanted layout: {LAYOUT}")
    return (present[0], present[1]) if present[0] else None


READER = folder_reader(LAYOUT, open_msmarco)
