"""Targets: a collection of every format, changed and prepared."""

import gzip
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from midmask.artifact import Place
from midmask.corpora import CorpusConfig, prepare
from tests.fuzz.mutating import TEXTS, Files, mutate_files
from tests.fuzz.running import Case, Outcome
from tests.support.corpora import layouts
from tests.support.corpora.collections import json_lines, write, write_beir
from tests.support.corpora.documents import write_documents
from tests.support.corpora.registered import register
from tests.support.corpora.saved import save, write_saved, write_saved_texts

LIMIT = 2_000
"""Characters of the longest passage, so that some are too long."""


def write_texts(folder: Path) -> None:
    write(folder / "a.jsonl", json_lines([{"text": f"text {n} of some"} for n in range(20)]))
    write(folder / "b.jsonl.gz", json_lines([{"_id": f"b{n}", "title": "t", "text": f"other {n}"} for n in range(20)]))


def write_trec(folder: Path) -> None:
    """Documents as elements, JSON and columns; topics as elements and columns."""
    docs = [
        f"<DOC>\n<DOCNO> d{n} </DOCNO>\n<TITLE>title {n}</TITLE>\n<!-- c --><TEXT>\npassage <b>{n}</b> &amp; more\n"
        "</TEXT>\n</DOC>\n"
        for n in range(12)
    ]
    write(folder / "docs/a", "".join(docs).encode())
    write(folder / "docs/b.gz", "".join(docs).replace("<DOCNO> d", "<DOCNO> e").encode())
    write(folder / "docs/c.jsonl", json_lines([{"_id": f"c{n}", "text": f"line {n}"} for n in range(6)]))
    write(folder / "docs/e.tsv", layouts.lines([(f"t{n}", f"columns {n}") for n in range(6)]))
    topics = [f"<top>\n<num> Number: {n}\n<title> title {n}\n<desc> Description: d\n</top>\n" for n in range(8)]
    write(folder / "topics.1", "".join(topics).encode())
    write(folder / "topics.2.tsv", layouts.lines([(n, f"query {n}") for n in range(20, 26)]))
    write(folder / "qrels.txt", layouts.lines([(n, 0, f"d{n}", n % 3) for n in range(8)], between=" "))


def write_all_of_nq(folder: Path) -> None:
    layouts.write_nq(folder, form="json")
    layouts.write_dpr_training(folder)


def write_titled_msmarco(folder: Path) -> None:
    layouts.write_msmarco(folder)
    (folder / "collection.tsv").unlink()
    rows = [(n, "-" if n % 3 else f"title {n}", layouts.passage(n)) for n in range(layouts.COUNT)]
    write(folder / "corpus.tsv.gz", layouts.lines(rows))


def _msmarco_with_years(folder: Path) -> None:
    layouts.write_msmarco(folder)
    layouts.write_deep_learning(folder)


SEEDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "beir": ("beir", partial(write_beir, passages=20, queries=9)),
    "beir, gz": ("beir", partial(write_beir, passages=20, queries=9, packed=True)),
    "beir, queries that are passages": ("beir", layouts.write_arguana),
    "msmarco": ("msmarco", _msmarco_with_years),
    "msmarco, titles": ("msmarco", write_titled_msmarco),
    "msmarco, titles apart": ("msmarco", layouts.write_rocketqa),
    "trec": ("trec", write_trec),
    "nq": ("nq", layouts.write_nq),
    "nq, dpr json": ("nq", write_all_of_nq),
    "tripclick": ("tripclick", layouts.write_tripclick),
    "hf": ("hf", partial(write_saved, passages=20, queries=9)),
    "hf, texts": ("hf", write_saved_texts),
    "texts": ("texts", write_texts),
    "docs": ("docs", write_documents),
}

LINES = {"beir": "corpus.jsonl", "beir, gz": "corpus.jsonl", "msmarco": "collection.tsv", "texts": ""}
"""Targets whose documents are lines without a header -> what the names of their files begin with."""


def files_of(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def write_files(folder: Path, files: Files) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def targets(root: Path) -> dict[str, Case]:
    """One a layout; the valid files are written below `root` once."""
    found: dict[str, Case] = {}
    for number, (name, (kind, write_seed)) in enumerate(SEEDS.items()):
        folder = root / f"corpus{number}"
        folder.mkdir()
        write_seed(folder)
        found[name] = partial(_read, kind, LINES.get(name), files_of(folder))
    register("fuzz/seed", root / "registered")
    return {**found, "hf, cells": _read_cells, "ir_datasets": partial(_read_registered, files_of(root / "registered"))}


def _read(kind: str, documents: str | None, seeds: Files, rng: random.Random, folder: Path) -> Outcome:
    files = mutate_files(rng, seeds)
    write_files(folder / "in", files)
    if rng.random() < 0.01 and files:
        name = rng.choice(sorted(files))
        (folder / "in" / name).unlink()
        (folder / "in" / name).mkdir()
    result = _prepared(rng, f"{kind}:{folder}/in", folder / "out")
    if documents is not None:
        _check_lines(result, _documents(files, documents))
    return _outcome(result, folder / "out")


def _documents(files: Files, start: str) -> list[bytes]:
    found = [(name, data) for name, data in files.items() if name.startswith(start) and "/" not in name]
    return [gzip.decompress(data) if name.endswith(".gz") else data for name, data in found]


def _read_registered(seeds: Files, rng: random.Random, folder: Path) -> Outcome:
    name = f"fuzz/{rng.randrange(1 << 60)}"
    register(name, folder / "in")
    write_files(folder / "in", mutate_files(rng, seeds))
    return _outcome(_prepared(rng, f"ir_datasets:{name}", folder / "out"), folder / "out")


def _read_cells(rng: random.Random, folder: Path) -> Outcome:
    """Saved datasets whose files are whole, with cells, types and columns as they should not be."""
    ids = [*(f"d{n}" for n in range(9)), None, *rng.sample(TEXTS, 3)]
    texts = [*(f"passage {n}" for n in range(9)), None, *rng.sample(TEXTS, 3)]
    scores: list[float | None] = [0, 1, 2, None, 0.5, -1, float("nan"), float("inf"), 1e300, 2.0**31]

    def table(columns: dict[str, list[Any]]) -> pa.Table:
        rows = {name: pa.array(rng.choices(values, k=30), from_pandas=False) for name, values in columns.items()}
        if rng.random() < 0.1:
            del rows[rng.choice(sorted(rows))]
        if rng.random() < 0.2:
            rows[rng.choice(["_id", "text", "n"])] = pa.array(rng.choices([1, 2, None], k=30))
        return pa.table(rows)

    save(folder / "in/corpus", table({"_id": ids, "title": texts, "text": texts}), shards=rng.choice([1, 2]))
    save(folder / "in/queries", table({"_id": ids, "text": texts}))
    save(folder / "in/qrels/test", table({"query-id": ids, "corpus-id": ids, "score": scores}))
    return _outcome(_prepared(rng, f"hf:{folder}/in", folder / "out"), folder / "out")


def _prepared(rng: random.Random, name: str, out: Path) -> dict[str, Any]:
    config = CorpusConfig(
        name=name,
        bad_rows_threshold=rng.choice([1.0, 1.0, 1.0, 0.01]),
        max_characters=LIMIT,
        splits=rng.choice(["complete", "official"]),
        max_passages=rng.choice([None, None, None, 7]),
    )
    return prepare(config, {}, Place(str(out)))


def _check_lines(result: dict[str, Any], documents: list[bytes]) -> None:
    """Every line that is not blank was kept, quarantined, or left out by a rule; none twice."""
    counts = result["rows_by_kind"]["docs"]
    accounted = counts["kept"] + sum(counts["quarantined"].values()) + counts["left_out"]
    lines = sum(bool(line.strip()) for data in documents for line in data.split(b"\n"))
    assert accounted == lines, f"{lines} lines, and {counts}"


def _outcome(result: dict[str, Any], out: Path) -> Outcome:
    bad = sum(result["rows_quarantined"].values())
    assert result["rows_read"] == result["rows_kept"] + bad + sum(result["rows_left_out"].values())
    assert (out / "quarantine.jsonl").read_bytes().count(b"\n") == bad, (
        "the quarantine has another number of rows than the result"
    )
    return "quarantined" if bad else "succeeded"
