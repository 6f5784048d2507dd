"""TripClick (Rekabsaz et al. 2021) as its `benchmark` folder is laid out, each file plain or .gz:

- `documents/docs_grp_*.txt` of <DOC> elements, or tables id, text or id, title, text (`docs/` will do, too);
- `topics/topics.SLICE.SPLIT.txt` of <top> elements or id<TAB>text, SLICE head, torso or tail by how often the query was
  asked, SPLIT train, val (here: dev) or test;
- `qrels/qrels.raw.SLICE.SPLIT.txt`: 1 clicked, 0 shown above a click; `qrels/qrels.dctr.head.SPLIT.txt`: 0 to 3 by the
  share of its showings in which a passage was clicked.

A split is judged by raw clicks, all three slices together. `test.head`, `test.torso` and `test.tail` are its slices,
and `test.head-dctr` is head with the graded judgements.
"""

import re

from midmask.artifact import Place
from midmask.corpora import beir, trec
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.msmarco import parse_query
from midmask.corpora.qrels import qrel_pieces
from midmask.corpora.reader import FolderReader
from midmask.corpora.strays import data_files
from midmask.corpora.titled import plain_title
from midmask.corpora.values import split_columns
from midmask.errors import UserError

LAYOUT = (
    "documents/docs_grp_*.txt, topics/topics.SLICE.SPLIT.txt and qrels/qrels.raw.SLICE.SPLIT.txt with SLICE head, "
    "torso or tail and SPLIT train, val or test, qrels/qrels.dctr.head.SPLIT.txt; that is the unpacked folder "
    "benchmark, or the folder above it"
)
TOPICS = re.compile(r"topics\.(head|torso|tail)\.(train|val|test)\.(txt|tsv)(\.gz)?")
QRELS = re.compile(r"qrels\.(raw|dctr)\.(head|torso|tail)\.(train|val|test)\.(txt|tsv)(\.gz)?")
OUR_NAME = {"val": "dev"}


def parse_columns(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of a line `id<TAB>text` or `id<TAB>title<TAB>text`."""
    names = ("id", "text") if text.count("\t") < 2 else ("id", "title", "text")
    doc_id, *title, passage = split_columns(text, *names)
    return doc_id.strip(), plain_title("".join(title)), passage


def open_tripclick(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    """The corpus in a TripClick folder.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    if not folder.exists():
        raise UserError(f"there is no folder {folder}; wanted is one with {LAYOUT}")
    root = "benchmark/" if (folder / "benchmark").exists() else ""
    documents = [
        f"{root}{part}/{file}" for part in ("documents", "docs") for file in data_files(folder / f"{root}{part}")
    ]
    topics = [f"{root}topics/{file}" for file in data_files(folder / f"{root}topics") if TOPICS.fullmatch(file)]
    judgements = [match for file in data_files(folder / f"{root}qrels") if (match := QRELS.fullmatch(file))]
    missing = [
        wanted
        for wanted, present in (
            ("documents/docs_grp_*.txt", documents),
            ("topics/topics.SLICE.SPLIT.txt", topics),
            ("qrels/qrels.raw.SLICE.SPLIT.txt", [match for match in judgements if match[1] == "raw"]),
        )
        if not present
    ]
    if missing:
        raise UserError(f"{folder}: {', '.join(missing)} missing; wanted layout: {LAYOUT}")
    limits = {"max_characters": max_characters}
    readers = (trec.Docs, trec.parse_passage, beir.parse_passage, parse_columns)
    asked = (trec.Topics, trec.parse_query, beir.parse_query, parse_query)
    files = _split_files(folder, root, judgements)
    return CorpusPieces(
        name,
        trec.mixed_pieces("docs", folder, documents, readers, limits),
        trec.mixed_pieces("queries", folder, topics, asked, limits),
        qrel_pieces(folder, files, max_characters),
        unions=_unions(files),
    )


def _split_files(folder: Place, root: str, judgements: list[re.Match[str]]) -> dict[str, str]:
    """`test.head`, `test.head-dctr`, … -> file."""
    files: dict[str, str] = {}
    for match in judgements:
        kind, own, part = match[1], match[2], OUR_NAME.get(match[3], match[3])
        split = f"{part}.{own}" if kind == "raw" else f"{part}.{own}-{kind}"
        if split in files:
            raise UserError(f"{folder}: {files[split]} and {match[0]} both are judgements of {split}; keep one of them")
        files[split] = f"{root}qrels/{match[0]}"
    return files


def _unions(files: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """split -> its slices that are judged by raw clicks."""
    unions: dict[str, tuple[str, ...]] = {}
    for split in sorted(files):
        part, _, own = split.partition(".")
        if "-" not in own:
            unions[part] = (*unions.get(part, ()), split)
    return unions


READER = FolderReader(LAYOUT, open_tripclick)
