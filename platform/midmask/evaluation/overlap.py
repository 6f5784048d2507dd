"""The overlap step: how many of the queries and passages that are evaluated were in the texts that a training read.

A text was read if more than half of its runs of eight words are in texts that were read, so that a copy is found where
it is lightly edited or cut at other places. PaLM's report (Chowdhery et al. 2022) compares runs of eight words too, and
asks for 70%. A text of fewer words is one run, and was read if a text of just these words was: in longer texts, such a
query stands by chance.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.config import Config
from midmask.core.randomness import uniform
from midmask.corpora.duplicates import shingles
from midmask.retrieve.searched_queries import judged_queries, relevant_passages
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_passages, read_table

WORDS = 8
"""In a run."""
READ_SHARE = 0.5
"""Share of a text's runs above which it counts as read."""
SAMPLE = 10_000
"""Passages of an evaluated collection, about, that stand for all of them if it has more."""


class OverlapConfig(Config):
    """Which texts of the collection `corpus` are read, and which splits are evaluated."""

    stage: Literal["middle training", "fine-tuning"] = Field(
        description="middle training: all passages, in which queries and passages are looked for; fine-tuning: the "
        "train queries, in which queries are looked for, and the passages relevant to them, in which passages are"
    )
    evaluated: tuple[tuple[str, str], ...] = Field(
        min_length=1,
        description="(name of a collection, split) of the inputs evaluated0, evaluated1, …; the fine-tuning's first",
    )


def find_overlaps(config: OverlapConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: corpus, which is read; evaluated0, …, the collections of `config.evaluated`.

    Returns:
        overlaps: a row for each evaluated split with stage, read (name of the collection that is read), corpus, split,
        transductive (whether that is the fine-tuning's collection and the stage reads it as such), and queries,
        relevant (passages) and passages (all of them, or a sample), each as [texts that were read, texts].
    """
    corpus, names = inputs["corpus"], config.evaluated
    artifacts = [inputs[f"evaluated{number}"] for number in range(len(names))]
    queries, relevant, sampled = [], [], []
    for artifact, (_, split) in zip(artifacts, names, strict=True):
        queries.append(_query_texts(artifact, judged_queries(artifact, split)))
        relevant.append(_relevant_texts(artifact, split))
        sampled.append(_sampled_texts(artifact))
    if config.stage == "middle training":
        counts = count_read([*queries, *relevant, *sampled], (texts for _, texts in _passages(corpus)))
    else:
        train = _query_texts(corpus, judged_queries(corpus, "train", judged="relevant"))
        counts = count_read(queries, [train])
        counts += count_read([*relevant, *sampled], [_relevant_texts(corpus, "train")])
    sources = {corpus.fingerprint, *corpus.record["identity"]["inputs"].values()}
    rows = [
        {
            **{"stage": config.stage, "read": corpus.result["name"], "corpus": name, "split": split},
            "transductive": name == names[0][0] and artifact.fingerprint in sources,
            **dict(zip(("queries", "relevant", "passages"), counts[number :: len(names)], strict=True)),
        }
        for number, (artifact, (name, split)) in enumerate(zip(artifacts, names, strict=True))
    ]
    return {"overlaps": rows}


def count_read(groups: Sequence[Sequence[str]], read: Iterable[Sequence[str]]) -> list[list[int]]:
    """Of each group of texts, [texts that were read, texts]. `read`: all texts that were, in lists of any length."""
    runs, lengths = shingles([text for texts in groups for text in texts], WORDS)
    runs, numbers = np.unique(runs, return_inverse=True)
    seen = np.zeros(len(runs), bool)
    for texts in read:
        hashes, _ = shingles(texts, WORDS)
        places = np.searchsorted(runs, hashes).clip(max=len(runs) - 1)
        seen[places[runs[places] == hashes]] = True
    shares = np.add.reduceat(seen[numbers], np.cumsum(lengths) - lengths, dtype=np.int64) / lengths
    ends = np.cumsum([len(texts) for texts in groups])[:-1]
    return [[int(each.sum()), len(each)] for each in np.split(shares > READ_SHARE, ends)]


def _passages(corpus: Artifact) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and texts of all passages, without their titles."""
    for name in (corpus.place / "docs").names():
        for doc_ids, _, texts in read_passages(corpus.place / "docs" / name):
            yield doc_ids, texts


def _passage_texts(corpus: Artifact, choose: Callable[[list[str]], Iterable[object]]) -> list[str]:
    """The passages that a function of their ids chooses."""
    return [text for doc_ids, texts in _passages(corpus) for text in compress(texts, choose(doc_ids))]


def _relevant_texts(corpus: Artifact, split: str) -> list[str]:
    relevant = set(relevant_passages(corpus.place, split)["doc_id"].to_pylist())
    return _passage_texts(corpus, lambda doc_ids: [doc_id in relevant for doc_id in doc_ids])


def _sampled_texts(corpus: Artifact) -> list[str]:
    share = SAMPLE / corpus.result["passages"]
    return _passage_texts(corpus, lambda doc_ids: uniform(doc_ids, "overlap") < share)


def _query_texts(corpus: Artifact, query_ids: Sequence[str]) -> list[str]:
    queries = read_table(corpus.place / "queries.parquet")
    chosen = queries.filter(pc.is_in(queries["query_id"], value_set=pa.array(query_ids, pa.string())))
    return list(chosen["text"].to_pylist())
