"""Docstrings of many modules to one collection: each body once, each question once, near-duplicates in one split."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from midmask.corpora.config import CorpusConfig
from midmask.corpora.docstrings import plain_words
from midmask.corpora.duplicates import clusters, signatures, similar_pairs
from midmask.corpora.statistics import is_question
from midmask.corpora.writer import ALIASES, DOCS, QRELS, QUERIES
from midmask.errors import UserError
from midmask.randomness.texts import hash64, uniform

GENERIC = 10
"""A summary that fits more passages than this asks for nothing in particular."""


@dataclass(frozen=True)
class Paired:
    """The tables of a corpus artifact. rules: how many docstrings there were, and how many each rule left out."""

    docs: pa.Table
    queries: pa.Table
    qrels: pa.Table
    aliases: pa.Table
    rules: dict[str, Any]


def pair_up(tables: Iterator[pa.Table], config: CorpusConfig) -> Paired:
    """All docstrings, held in memory (some ten MB), to the collection.

    Bodies that are equal become one passage, with the other docstrings' names as aliases; summaries that are equal but
    for case and punctuation become one query with several relevant passages. Near-duplicate passages, and passages that
    share a query, form a cluster, which goes to one split by the hash of its first member's module: 80/10/10. A sample
    (max_passages) takes whole clusters in the order of a hash.

    Raises:
        UserError: if no docstring is left.
    """
    rules: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for table in tables:
        for row in table.select(["rule", "name", "module", "summary", "text", "words", "question"]).to_pylist():
            rules["docstrings"] += not str(row["rule"]).endswith(" file")
            if row["rule"]:
                rules[row["rule"]] += 1
            else:
                rows.append(row)
    rows = _without_generic(rows, rules)
    if not rows:
        raise UserError("pydocs: no docstring of the packages has both a summary and a body; name other packages")
    _name_apart(rows)
    bodies = _number_texts(row["text"] for row in rows)
    questions = _number_texts(_key(row) for row in rows)
    first = np.unique(bodies, return_index=True)[1]
    home = _clusters(bodies, questions, [rows[row]["text"] for row in first])
    names = [rows[first[passage]]["module"] for passage in home]
    split = np.asarray(["train", "dev", "test"])[
        np.searchsorted([0.8, 0.9], uniform(names, f"split {config.split_seed}"), side="right")
    ]
    kept = _sample(home, config)[bodies]
    rules["max_passages"] = int((~kept).sum())
    rows = [{**row, "split": split[body]} for row, body in zip(rows, bodies, strict=True)]
    docs, queries, qrels, aliases = _tables(rows, bodies, questions, kept)
    counts = {rule: number for rule, number in sorted(rules.items()) if number}
    return Paired(docs, queries, qrels, aliases, rules=counts)


def _key(row: dict[str, Any]) -> str:
    return " ".join(plain_words(row["summary"]))


def _without_generic(rows: list[dict[str, Any]], rules: Counter[str]) -> list[dict[str, Any]]:
    passages: dict[str, set[str]] = {}
    for row in rows:
        passages.setdefault(_key(row), set()).add(row["text"])
    kept = [row for row in rows if len(passages[_key(row)]) <= GENERIC]
    rules["generic summary"] = len(rows) - len(kept)
    return kept


def _name_apart(rows: list[dict[str, Any]]) -> None:
    """A name that comes again (overloads, getters and setters) gets a number."""
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row["name"]] += 1
        if seen[row["name"]] > 1:
            row["name"] = f"{row['name']}#{seen[row['name']]}"


def _number_texts(texts: Iterator[str]) -> NDArray[np.int64]:
    """The number of each text, equal texts having one, in order of first appearance."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def _clusters(bodies: NDArray[np.int64], questions: NDArray[np.int64], texts: list[str]) -> NDArray[np.int64]:
    """The lowest passage of each passage's cluster."""
    order = np.argsort(questions, kind="stable")
    together = questions[order[1:]] == questions[order[:-1]]
    asked = np.stack([bodies[order[:-1][together]], bodies[order[1:][together]]], axis=1)
    return clusters(len(texts), np.concatenate([similar_pairs(signatures(texts)), asked]))


def _sample(home: NDArray[np.int64], config: CorpusConfig) -> NDArray[np.bool_]:
    """True for each passage to keep: clusters in the order of their hash, as long as they fit into max_passages."""
    if config.max_passages is None:
        return np.ones(len(home), bool)
    roots, sizes = np.unique(home, return_counts=True)
    order = np.argsort(hash64([str(root) for root in roots], f"sample {config.split_seed}"), kind="stable")
    fits = np.cumsum(sizes[order]) <= config.max_passages
    return np.isin(home, roots[order][fits])


def _tables(
    rows: list[dict[str, Any]], bodies: NDArray[np.int64], questions: NDArray[np.int64], kept: NDArray[np.bool_]
) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """docs, queries, qrels and aliases of the rows that are kept, each in order of first appearance."""
    docs: dict[int, dict[str, Any]] = {}
    queries: dict[int, dict[str, Any]] = {}
    qrels: dict[tuple[int, int], dict[str, Any]] = {}
    aliases: list[dict[str, str]] = []
    for index in np.flatnonzero(kept).tolist():
        row, body, question = rows[index], int(bodies[index]), int(questions[index])
        if body in docs:
            aliases.append({"doc_id": docs[body]["doc_id"], "alias": row["name"]})
        else:
            facts = {name: row[name] for name in ("text", "words", "question")}
            docs[body] = {"doc_id": row["name"], "title": row["module"], **facts}
        text = row["summary"]
        asked = {
            "query_id": f"q:{row['name']}",
            "text": text,
            "words": len(text.split()),
            "question": is_question(text),
        }
        query_id = queries.setdefault(question, asked)["query_id"]
        judgement = {"split": row["split"], "query_id": query_id, "doc_id": docs[body]["doc_id"], "grade": 1}
        qrels.setdefault((question, body), judgement)
    return (
        pa.Table.from_pylist(list(docs.values()), schema=_with_facts(DOCS)),
        pa.Table.from_pylist(list(queries.values()), schema=_with_facts(QUERIES)),
        pa.Table.from_pylist(list(qrels.values()), schema=QRELS),
        pa.Table.from_pylist(aliases, schema=ALIASES),
    )


def _with_facts(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, ("words", pa.int32()), ("question", pa.bool_())])
