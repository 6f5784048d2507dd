"""The collection that users of the Python API train on and search: a folder, or texts in memory, checked."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from midmask.app.job import resolve_corpus
from midmask.core.config import fingerprint
from midmask.corpora.chunks import is_nothing
from midmask.corpora.config import FORMATS, CorpusConfig
from midmask.corpora.reader import recognise
from midmask.corpora.writer import write_beir
from midmask.errors import UserError, quoted, unknown
from midmask.store.artifact import produce
from midmask.store.place import Place

Id = str | int
TextsById = Sequence[str] | Mapping[Id, str]
"""TextsById by id; those of a sequence have their positions as ids: 0, 1, …"""

Relevant = Id | Collection[Id] | Mapping[Id, int]
"""The documents that answer a query: one id, several, or id -> grade (0: not relevant)."""

DRAWN = "test"
"""Split whose file holds judgements that were given without splits: train, dev and test are drawn from it."""


@dataclass(frozen=True)
class GivenTexts:
    """The checked rows of a collection in memory."""

    documents: tuple[tuple[str, str, str], ...]  # (id, title, text)
    queries: tuple[tuple[str, str], ...]  # (id, text)
    judgements: Mapping[str, tuple[tuple[str, str, int], ...]]  # split -> (query id, document id, grade)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint({"documents": self.documents, "queries": self.queries, "judgements": dict(self.judgements)})

    def write(self, folder: Place) -> None:
        """Writes the rows as a BEIR folder; equal rows give equal bytes."""
        queries = [{"_id": name, "text": text} for name, text in self.queries]
        write_beir(folder, self.documents, queries or None, self.judgements)


def _read_titles(names: Sequence[str], titles: Sequence[Any] | None) -> list[str]:
    """A title for each text; "" where None, NaN or the like stands for none."""
    cleaned = ["" if is_nothing(title) else title for title in titles or [""] * len(names)]
    for name, title in zip(names, cleaned, strict=True):
        if not isinstance(title, str):
            raise UserError(f"titles, id {quoted(name)}: {quoted(title)} is no string; leave it out, or convert it")
    return cleaned


def _check_texts(kind: str, texts: TextsById, ids: Sequence[Id] | None) -> tuple[list[str], list[str]]:
    """Ids and texts, checked."""
    if isinstance(texts, str):
        raise UserError(f"{kind}: one string; give a list of strings")
    if isinstance(texts, Mapping):
        if ids is not None:
            raise UserError(f"{kind}: a dict has ids already; leave out ids=")
        keys, bodies = list(texts.keys()), list(texts.values())
    else:
        bodies = list(texts)
        keys = list(range(len(bodies))) if ids is None else list(ids)
    if not bodies:
        raise UserError(f"{kind}: an empty list; give at least one string")
    if len(keys) != len(bodies):
        raise UserError(f"ids: {len(keys):,} for {len(bodies):,} {kind}; give one id for each")
    names = [_id(kind, key) for key in keys]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError(f"{kind}: the id {quoted(name)} stands twice; give each its own")
        seen.add(name)
    for name, body in zip(names, bodies, strict=True):
        if not isinstance(body, str):
            raise UserError(f"{kind}, id {quoted(name)}: {quoted(body)} is no string; leave it out, or convert it")
    return names, bodies


def _id(kind: str, value: Any) -> str:
    """An id as text: white space would divide it in the files of judgements."""
    name = str(value)
    infinite = isinstance(value, float) and math.isinf(value)
    if name != "".join(name.split()) or not name or infinite or is_nothing(value):
        raise UserError(f"{kind}: {quoted(value)} cannot be an id; use a text without white space, or a number")
    return name


def _judgements(
    queries: Sequence[str], documents: Collection[str], relevant: Sequence[Relevant] | Mapping[Id, Relevant]
) -> list[tuple[str, str, int]]:
    if isinstance(relevant, Mapping):
        pairs = [(str(query), value) for query, value in relevant.items()]
        if strange := [query for query, _ in pairs if query not in set(queries)]:
            raise UserError(
                f"relevant: there is no query with the id {quoted(strange[0])}; its keys are ids of queries"
            )
    else:
        if len(relevant) != len(queries):
            raise UserError(f"relevant: {len(relevant):,} for {len(queries):,} queries; give one entry for each query")
        pairs = list(zip(queries, relevant, strict=True))
    rows = [(query, document, grade) for query, value in pairs for document, grade in _grades(value)]
    for query, document, _ in rows:
        if document not in documents:
            raise UserError(
                f"relevant, query {quoted(query)}: there is no text with the id {quoted(document)}; texts of a list "
                "have their positions as ids, from 0"
            )
    if not any(grade > 0 for _, _, grade in rows):
        raise UserError("relevant: no query has a relevant text, so there is nothing to train on or to measure")
    return rows


def _grades(value: Relevant) -> Iterable[tuple[str, int]]:
    """(document id, grade) of one query's entry."""
    if isinstance(value, Mapping):
        return [(str(document), int(grade)) for document, grade in value.items()]
    several = [value] if isinstance(value, str | int) else list(value)
    return [(str(document), 1) for document in dict.fromkeys(several)]


def _in_splits(
    judgements: Sequence[tuple[str, str, int]], splits: Mapping[str, Collection[Id]] | None
) -> dict[str, tuple[tuple[str, str, int], ...]]:
    if splits is None:
        return {DRAWN: tuple(judgements)}
    sets = {name: {str(query) for query in queries} for name, queries in splits.items()}
    times = Counter(name for queries in sets.values() for name in queries)
    for query, _, _ in judgements:
        if times[query] != 1:
            raise UserError(f"splits: the query {quoted(query)} is in {times[query]} of {sorted(sets)}; put it in one")
    divided = {name: tuple(row for row in judgements if row[0] in queries) for name, queries in sets.items()}
    if empty := [name for name, rows in divided.items() if not rows]:
        raise UserError(f"splits: no query of {empty[0]!r} has a judgement; leave the split out")
    return divided


COLLECTIONS = "collections"
"""Folder of a store with collections that were given as texts."""


@dataclass(frozen=True)
class Corpus:
    """Documents, with or without queries and judgements. Make one with `from_texts`, `from_folder`, `from_beir` or
    `from_dataframe`.

    name: what tables and metrics call it. source: where it is read, or its rows in memory. How it is read (`corpus.…`)
    is a setting of what reads it: `train`, `evaluate` and `choose`.
    """

    name: str
    source: CorpusConfig | GivenTexts

    @classmethod
    def from_texts(
        cls,
        texts: TextsById,
        *,
        titles: Sequence[str] | None = None,
        ids: Sequence[Id] | None = None,
        queries: TextsById | None = None,
        relevant: Sequence[Relevant] | Mapping[Id, Relevant] | None = None,
        splits: Mapping[str, Collection[Id]] | None = None,
        name: str = "texts",
    ) -> "Corpus":
        """A corpus of strings, each one document as it is.

        Args:
            texts: a list, whose ids are the positions 0, 1, …, or id -> text.
            titles: one for each text; none: without titles.
            ids: one for each text of a list.
            queries: a list or id -> text, as `texts`. With `relevant`, a recipe also fine-tunes, and `evaluate` works.
            relevant: for each query, in order or by id: the id of the text that answers it, several ids, or
                id -> grade. This is sentence-transformers' `relevant_docs` and BEIR's `qrels`.
            splits: split -> ids of its queries, such as {"train": […], "test": […]}; none: train, dev and test are
                drawn, 60/20/20, by a hash of the id.
            name: what tables and metrics call it.

        Raises:
            UserError: for an empty list, an id that stands twice, a value that is no string, queries that judge
                nothing, or an id in `relevant` or `splits` that is not there.
        """
        if not name or "/" in name or ":" in name:
            raise UserError(f"name = {name!r}: use a word without / and :, such as name='faq'")
        names, bodies = _check_texts("texts", texts, ids)
        if titles is not None and len(titles) != len(bodies):
            raise UserError(f"titles: {len(titles):,} for {len(bodies):,} texts; give one title for each text, or none")
        documents = tuple(zip(names, _read_titles(names, titles), bodies, strict=True))
        if (queries is None) != (relevant is None):
            missing, present = ("relevant", "queries") if relevant is None else ("queries", "relevant")
            raise UserError(f"{present} without {missing}: give both, queries=[…] and relevant=[…], or neither")
        if queries is None or relevant is None:
            if splits is not None:
                raise UserError("splits without queries: they name queries; give queries=[…] and relevant=[…] too")
            return cls(name, GivenTexts(documents, (), {}))
        query_ids, questions = _check_texts("queries", queries, None)
        judgements = _in_splits(_judgements(query_ids, set(names), relevant), splits)
        return cls(name, GivenTexts(documents, tuple(zip(query_ids, questions, strict=True)), judgements))

    @classmethod
    def from_folder(cls, path: str | Path) -> "Corpus":
        """A corpus in files: FORMAT:PLACE as the jobs take it (`nq:/data/nq`, `ir_datasets:beir/scifact`), the
        built-in `pydocs`, or a folder whose format is recognised by its files.

        Raises:
            UserError: for an unknown format, or a folder that is not there or in no known format.
        """
        text = str(path)
        kind, colon, _ = text.partition(":")
        if kind in FORMATS and (colon or not FORMATS[kind]):
            config = CorpusConfig(name=resolve_corpus(text, Path.cwd()))
        else:
            if "://" not in text:
                folder = Path(text).expanduser().absolute()
                if not folder.is_dir():
                    raise UserError(f"from_folder({text!r}): there is no folder {folder}")
                text = str(folder)
            config = CorpusConfig(name=recognise(text))
        return cls(config.short_name, config)

    @classmethod
    def from_beir(cls, path: str | Path) -> "Corpus":
        """A BEIR folder: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; only the first is required."""
        return cls.from_folder(f"beir:{path}")

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        text: str,
        title: str | None = None,
        id: str | None = None,
        name: str = "dataframe",
    ) -> "Corpus":
        """A corpus of a table's rows, each one document. Works for pandas, polars and whatever else has `columns`.

        Args:
            text: the column of the texts.
            title: the column of the titles; none: without titles.
            id: the column of the ids; none: rows have their positions as ids.

        Raises:
            UserError: for a column that is not there, and as `from_texts`.
        """
        columns = [str(name) for name in frame.columns]
        for column in filter(None, (text, title, id)):
            if column not in columns:
                raise unknown("column", column, columns)
        return cls.from_texts(
            list(frame[text]),
            titles=list(frame[title]) if title else None,
            ids=list(frame[id]) if id else None,
            name=name,
        )

    def in_store(self, storage: Place) -> CorpusConfig:
        """The collection as steps read it; one in memory is written to the store, once."""
        if isinstance(self.source, CorpusConfig):
            return self.source
        rows = self.source

        def write(out: Place) -> dict[str, Any]:
            rows.write(out / self.name)
            return {"documents": len(rows.documents), "queries": len(rows.queries)}

        record = {"step": COLLECTIONS, "fingerprint": rows.fingerprint, "config": {}, "inputs": {}}
        artifact = produce(storage / COLLECTIONS / rows.fingerprint / self.name, record, write)
        return CorpusConfig(name=f"beir:{artifact.place / self.name}")

    def __repr__(self) -> str:
        if isinstance(self.source, CorpusConfig):
            return f"Corpus({self.source.name})"
        rows = self.source
        return f"Corpus({self.name}: {len(rows.documents):,} documents, {len(rows.queries):,} queries)"
