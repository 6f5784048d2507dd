"""The read_run step: the ranked lists of another tool, from a TREC run file, checked against the collection.

    ranked/SPLIT.parquet    the lists of the split's judged queries (`ranked.SCHEMA`)

The evaluation then measures them as trec_eval -c does: nothing is removed from a list. A document that the
collection lacks keeps its rank; it counts as not relevant, unless it is judged.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.config import Config, runtime
from midmask.corpora.opening import open_text
from midmask.corpora.splits import is_slice
from midmask.errors import UserError, unknown
from midmask.retrieve import ranked
from midmask.retrieve.searched_queries import are_passages, is_self, read_answers, read_qrels, read_self_matches
from midmask.store.artifact import Artifact
from midmask.store.place import Place

ENOUGH = 0.5
"""Share of a split's queries from which on a run is taken for one of this split, whatever else it ranks."""

DIGEST_PARAM = "run.digest"
"""Param of a tracked run that was measured from a run file: `run_digest` of the file."""

TIES_PARAM = "run.ties"
"""Param of its tracked run: the order of documents of equal score."""


class RunFileConfig(Config):
    """Ranked lists of another tool. The file's content is the step's identity, not its place."""

    WITHDRAWN = (("leave_out_copies", False),)

    split: str = Field(description="split whose queries are taken")
    ties: ranked.TieRule = Field(
        "midmask", description="order of documents of equal score: by id ascending, or descending as trec_eval has it"
    )
    file: str = runtime("", "TREC run file, plain or gzip'd")


def run_digest(file: str | Path) -> str:
    """16 hexadecimal digits of the SHA-256 of a run file's lines, the same whether the file is gzip'd or not.

    Raises:
        UserError: if there is no such file, or it is no text.
    """
    if not Path(file).is_file():
        raise UserError(f"{file}: there is no such file; name a TREC run file")
    with open_text(Place(str(Path(file).absolute()))) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]  # type: ignore[arg-type]


def read_run(config: RunFileConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input corpus.

    Returns:
        splits (split -> queries, ranked, empty_slots) as of a search, and read: {"run": counts}. Counts are rows and
        queries of the file, longest (rows of its longest list), left_out_queries (not judged in the split, or without a
        text in the collection), unknown_documents (neither in the collection nor judged) and copies (rows that are the
        query itself); and the rule of ties.

    Raises:
        UserError: for a bad line, a run of another split, or a run of which the collection has no document.
    """
    run = ranked.read_trec(Place(config.file), config.ties)
    corpus = inputs["corpus"]
    listed = pc.unique(run["query_id"])
    queries = _judged_queries(config, corpus, set(listed.to_pylist()))
    documents = pc.unique(run["doc_id"])
    judged = pc.is_in(documents, value_set=read_qrels(corpus)["doc_id"]).to_numpy(zero_copy_only=False)
    lacking = documents.filter(pa.array(~(judged | are_passages(corpus.place, documents))))
    if len(lacking) == len(documents):
        raise UserError(
            f"{config.file}: none of its documents, such as {documents[0].as_py()!r}, is in {corpus.result['name']}; "
            "name the collection that the run was made on, as --corpus beir:FOLDER"
        )
    taken = run.filter(pc.is_in(run["query_id"], value_set=pa.array(sorted(queries), pa.string())))
    rows = ranked.write(out / "ranked" / f"{config.split}.parquet", [taken])
    counts = {
        "rows": len(run),
        "queries": len(listed),
        "longest": int(run["rank"].to_numpy().max()),
        "left_out_queries": len(listed) - len(queries),
        "unknown_documents": len(lacking),
        "copies": int(is_self(taken, read_self_matches(corpus)).sum()),
        "ties": config.ties,
    }
    splits = {config.split: {"queries": len(queries), "ranked": rows, "empty_slots": 0}}
    return {"splits": splits, "read": {"run": counts}}


def _judged_queries(config: RunFileConfig, corpus: Artifact, listed: set[str]) -> set[str]:
    """The queries of the run that are judged in the split.

    Raises:
        UserError: for a split that the collection lacks; if there is no such query; or if these are the smaller part of
            the split's queries and the run has more of another split.
    """
    judged = _queries_by_split(corpus)
    if config.split not in judged:
        raise unknown(f"split of {corpus.result['name']}", config.split, judged)
    common = {name: listed & queries for name, queries in judged.items() if name == config.split or not is_slice(name)}
    shares = {name: len(queries) / len(judged[name]) for name, queries in common.items()}
    split_queries, share = common[config.split], shares[config.split]
    if share >= ENOUGH or (split_queries and share == max(shares.values())):
        return split_queries
    counts = ", ".join(f"{len(queries):,} of the {len(judged[name]):,} of {name}" for name, queries in common.items())
    raise UserError(
        f"{config.file}: it has other queries than {config.split}: of the judged queries of {corpus.result['name']}, "
        f"{counts}; name the split that it ranks, with --split (in Python: split=), or the collection that it was made "
        "on, as --corpus beir:FOLDER"
    )


def _queries_by_split(corpus: Artifact) -> dict[str, set[str]]:
    """Split or slice -> ids of its judged queries."""
    by_split: dict[str, set[str]] = {}
    for table in (read_qrels(corpus), read_answers(corpus)):
        for split in pc.unique(table["split"]).to_pylist():
            queries = table.filter(pc.equal(table["split"], split))["query_id"]
            by_split.setdefault(split, set()).update(pc.unique(queries).to_pylist())
    return by_split
