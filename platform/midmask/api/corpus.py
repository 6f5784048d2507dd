"""The collection that users of the Python API train on and search."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from midmask.api.catalogue import as_changes, check_reach, read_as
from midmask.api.texts import GivenTexts, Id, Relevant, TextsById, text_rows
from midmask.app.job import resolve_corpus
from midmask.artifact import Place, produce
from midmask.corpora import CorpusConfig
from midmask.corpora.formats import FORMATS
from midmask.corpora.recognition import recognise
from midmask.errors import UserError, unknown

COLLECTIONS = "collections"
"""Folder of a store with collections that were given as texts."""


@dataclass(frozen=True)
class Corpus:
    """Documents, with or without queries and judgements. Make one with `from_texts`, `from_folder`, `from_beir` or
    `from_dataframe`.

    name: what tables and metrics call it. source: where it is read, or its rows in memory. settings: how it is read,
    `corpus.…` -> value.
    """

    name: str
    source: CorpusConfig | GivenTexts
    settings: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_reach(self.settings, ("corpus",), "a corpus")

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
        settings: Mapping[str, object] | None = None,
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
            settings: how it is read: dotted path -> value, such as {"corpus.bad_rows_threshold": 0.1}.

        Raises:
            UserError: for an empty list, an id that stands twice, a value that is no string, queries that judge
                nothing, or an id in `relevant` or `splits` that is not there.
        """
        if not name or "/" in name or ":" in name:
            raise UserError(f"name = {name!r}: use a word without / and :, such as name='faq'")
        return cls(name, text_rows(texts, titles, ids, queries, relevant, splits), as_changes(settings))

    @classmethod
    def from_folder(cls, path: str | Path, *, settings: Mapping[str, object] | None = None) -> "Corpus":
        """A corpus in files: FORMAT:PLACE as the jobs take it (`trec:/data/robust`, `ir_datasets:beir/scifact`), the
        built-in `pydocs`, or a folder whose format is recognised by its files.

        Args:
            settings: how it is read: dotted path -> value, such as {"corpus.bad_rows_threshold": 0.1}.

        Raises:
            UserError: for an unknown format, or a folder that is not there or in no known format.
        """
        text = str(path)
        kind, colon, _ = text.partition(":")
        if kind in FORMATS and (colon or not FORMATS[kind].place):
            config = CorpusConfig(name=resolve_corpus(text, Path.cwd()))
        else:
            if "://" not in text:
                folder = Path(text).expanduser().absolute()
                if not folder.is_dir():
                    raise UserError(f"from_folder({text!r}): there is no folder {folder}")
                text = str(folder)
            config = CorpusConfig(name=recognise(text))
        return cls(config.short_name, config, as_changes(settings))

    @classmethod
    def from_beir(cls, path: str | Path, *, settings: Mapping[str, object] | None = None) -> "Corpus":
        """A BEIR folder: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; only the first is required.

        Args:
            settings: as for `from_folder`.
        """
        return cls.from_folder(f"beir:{path}", settings=settings)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        text: str,
        title: str | None = None,
        id: str | None = None,
        name: str = "dataframe",
        settings: Mapping[str, object] | None = None,
    ) -> "Corpus":
        """A corpus of a table's rows, each one document. Works for pandas, polars and whatever else has `columns`.

        Args:
            text: the column of the texts.
            title: the column of the titles; none: without titles.
            id: the column of the ids; none: rows have their positions as ids.
            settings: as for `from_texts`.

        Raises:
            UserError: for a column that is not there, and as `from_texts`.
        """
        columns = [str(column) for column in frame.columns]
        for wanted in filter(None, (text, title, id)):
            if wanted not in columns:
                raise unknown("column", wanted, columns)
        return cls.from_texts(
            list(frame[text]),
            titles=list(frame[title]) if title else None,
            ids=list(frame[id]) if id else None,
            name=name,
            settings=settings,
        )

    def in_store(self, storage: Place) -> CorpusConfig:
        """The collection as steps read it; one in memory is written to the store, once."""
        return read_as(self._stored(storage), self.settings)

    def _stored(self, storage: Place) -> CorpusConfig:
        if isinstance(self.source, CorpusConfig):
            return self.source
        rows = self.source

        def write(out: Place) -> dict[str, Any]:
            rows.write(out / self.name)
            return {"documents": len(rows.documents), "queries": len(rows.queries)}

        record = {"step": COLLECTIONS, "fingerprint": rows.fingerprint, "config": {}, "inputs": {}}
        kept = produce(storage / COLLECTIONS / rows.fingerprint / self.name, record, write)
        return CorpusConfig(name=f"beir:{kept.place / self.name}")

    def __repr__(self) -> str:
        if isinstance(self.source, CorpusConfig):
            return f"Corpus({self.source.name})"
        rows = self.source
        return f"Corpus({self.name}: {len(rows.documents):,} documents, {len(rows.queries):,} queries)"
