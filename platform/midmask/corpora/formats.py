"""From a corpus's name to its parts, and to what makes two corpora the same."""

from typing import Any

from midmask.artifact import Place
from midmask.corpora.beir import open_beir
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import Corpus
from midmask.corpora.irds import fingerprints, open_ir_dataset
from midmask.corpora.msmarco import open_msmarco
from midmask.corpora.nq import open_nq
from midmask.corpora.pydocs import open_pydocs, package_versions
from midmask.corpora.texts import open_texts
from midmask.corpora.trec import open_trec
from midmask.corpora.tripclick import open_tripclick
from midmask.registry import Registry

READER_VERSION = 2
"""Raised whenever a reader gives other rows for the same source."""

OPENERS = Registry(
    "corpus format",
    {
        "beir": open_beir,
        "msmarco": open_msmarco,
        "trec": open_trec,
        "nq": open_nq,
        "tripclick": open_tripclick,
        "texts": open_texts,
    },
)


def open_corpus(config: CorpusConfig) -> Corpus:
    """The corpus's parts; only names of files and first lines are read.

    Raises:
        UserError: naming the missing file, folder or package, and the layout wanted.
    """
    if config.format == "pydocs":
        return open_pydocs(config.packages, config.max_characters)
    if config.format == "ir_datasets":
        return open_ir_dataset(config.place, config.short_name, config.max_characters)
    return OPENERS[config.format](Place.named(config.place), config.short_name, config.max_characters)


def judged_splits(config: CorpusConfig) -> list[str]:
    """Names of the splits that a prepared collection has, told from its files' names; sorted, [] without judgements.

    Raises:
        UserError: as `open_corpus`.
    """
    corpus = open_corpus(config)
    names = {piece.split for piece in (*corpus.qrels, *corpus.queries) if piece.split}
    if config.format == "pydocs" or (names and config.splits == "complete" and not corpus.unions):
        names |= {"train", "dev", "test"}
    return sorted(names | corpus.unions.keys())


def corpus_identity(config: CorpusConfig) -> dict[str, Any]:
    """All that decides the artifact's bytes, as plain data: the caller fingerprints this in place of the config.

    Files count by name and contents, not by where they lie; an id of ir_datasets by its records; pydocs by the versions
    of packages and of Python, whose grammar decides which sources can be read. The short name counts, since results
    bear it.
    """
    facts: dict[str, Any] = {
        "reader": READER_VERSION,
        "name": config.short_name,
        "format": config.format,
        "max_passages": config.max_passages,
        "max_characters": config.max_characters,
        "splits": config.splits,
        "self_matches": config.self_matches,
        "split_seed": config.split_seed,
    }
    if config.format == "pydocs":
        return {**facts, **package_versions(config.packages)}
    if config.format == "ir_datasets":
        return {**facts, "records": fingerprints(open_corpus(config))}
    folder = Place.named(config.place)
    return {**facts, "files": {file: (folder / file).digest() for file in open_corpus(config).files()}}
