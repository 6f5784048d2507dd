"""A collection in memory: its documents, queries and judgements, checked and as plain rows."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from midmask.artifact import Place
from midmask.corpora.export import write_lines, write_qrels
from midmask.corpora.values import is_nothing
from midmask.errors import UserError, quoted
from midmask.identity import fingerprint

Id = str | int
TextsById = Sequence[str] | Mapping[Id, str]
"""TextsById by id; those of a sequence have their positions as ids: 0, 1, …"""

Relevant = Id | Collection[Id] | Mapping[Id, int]
"""The documents that answer a query: one id, several, or id -> grade (0: not relevant)."""

DRAWN = "test"
"""Split whose file holds judgements that were given without splits: train, dev and test are drawn from it."""


@dataclass(frozen=True)
class GivenTexts:
    """Rows of a collection. documents: (id, title, text); queries: (id, text); judgements: split -> (query id, document
    id, grade).
    """

    documents: tuple[tuple[str, str, str], ...]
    queries: tuple[tuple[str, str], ...]
    judgements: Mapping[str, tuple[tuple[str, str, int], ...]]

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint({"documents": self.documents, "queries": self.queries, "judgements": dict(self.judgements)})

    def write(self, folder: Place) -> None:
        """Writes the rows as a BEIR folder; equal rows give equal bytes."""
        documents = ({"_id": name, "title": title, "text": text} for name, title, text in self.documents)
        write_lines(folder / "corpus.jsonl.gz", documents)
        if self.queries:
            write_lines(folder / "queries.jsonl.gz", ({"_id": name, "text": text} for name, text in self.queries))
        for split, judgements in self.judgements.items():
            write_qrels(folder / "qrels" / f"{split}.tsv", judgements)


def text_rows(
    texts: TextsById,
    titles: Sequence[str] | None,
    ids: Sequence[Id] | None,
    queries: TextsById | None,
    relevant: Sequence[Relevant] | Mapping[Id, Relevant] | None,
    splits: Mapping[str, Collection[Id]] | None,
) -> GivenTexts:
    """The rows of what `Corpus.from_texts` takes.

    Raises:
        UserError: as `Corpus.from_texts`.
    """
    names, bodies = _check_texts("texts", texts, ids)
    if titles is not None and len(titles) != len(bodies):
        raise UserError(f"titles: {len(titles):,} for {len(bodies):,} texts; give one title for each text, or none")
    documents = tuple(zip(names, _read_titles(names, titles), bodies, strict=True))
    if (queries is None) != (relevant is None):
        missing, given = ("relevant", "queries") if relevant is None else ("queries", "relevant")
        raise UserError(f"{given} without {missing}: give both, queries=[…] and relevant=[…], or neither")
    if queries is None or relevant is None:
        if splits is not None:
            raise UserError("splits without queries: they name queries; give queries=[…] and relevant=[…] too")
        return GivenTexts(documents, (), {})
    asked, questions = _check_texts("queries", queries, None)
    judgements = _judgements(asked, set(names), relevant)
    return GivenTexts(documents, tuple(zip(asked, questions, strict=True)), _in_splits(judgements, splits))


def _read_titles(names: Sequence[str], titles: Sequence[Any] | None) -> list[str]:
    """A title for each text; "" where None, NaN or the like stands for none."""
    found = ["" if is_nothing(title) else title for title in titles or [""] * len(names)]
    for name, title in zip(names, found, strict=True):
        if not isinstance(title, str):
            raise UserError(f"titles, id {quoted(name)}: {quoted(title)} is no string; leave it out, or convert it")
    return found


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
    asked: Sequence[str], documents: Collection[str], relevant: Sequence[Relevant] | Mapping[Id, Relevant]
) -> list[tuple[str, str, int]]:
    if isinstance(relevant, Mapping):
        pairs = [(str(query), value) for query, value in relevant.items()]
        if strange := [query for query, _ in pairs if query not in set(asked)]:
            raise UserError(
                f"relevant: there is no query with the id {quoted(strange[0])}; its keys are ids of queries"
            )
    else:
        if len(relevant) != len(asked):
            raise UserError(f"relevant: {len(relevant):,} for {len(asked):,} queries; give one entry for each query")
        pairs = list(zip(asked, relevant, strict=True))
    found = [(query, document, grade) for query, value in pairs for document, grade in _grades(value)]
    for query, document, _ in found:
        if document not in documents:
            raise UserError(
                f"relevant, query {quoted(query)}: there is no text with the id {quoted(document)}; texts of a list "
                "have their positions as ids, from 0"
            )
    if not any(grade > 0 for _, _, grade in found):
        raise UserError("relevant: no query has a relevant text, so there is nothing to train on or to measure")
    return found


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
    own = {name: {str(query) for query in queries} for name, queries in splits.items()}
    times = Counter(name for queries in own.values() for name in queries)
    for query, _, _ in judgements:
        if times[query] != 1:
            raise UserError(f"splits: the query {quoted(query)} is in {times[query]} of {sorted(own)}; put it in one")
    found = {name: tuple(row for row in judgements if row[0] in queries) for name, queries in own.items()}
    if empty := [name for name, rows in found.items() if not rows]:
        raise UserError(f"splits: no query of {empty[0]!r} has a judgement; leave the split out")
    return found
