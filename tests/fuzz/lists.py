"""Targets: files of negatives, scores, queries and runs."""

import gzip
import json
import random
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.errors import UserError
from midmask.mining.listed import ReadNegativesConfig, read_negatives
from midmask.queries.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.retrieve import ranked
from midmask.store.place import Place
from midmask.store.sharded import Inputs
from midmask.teacher.score import ReadScoresConfig, read_scores
from tests.fuzz.mutating import mutate_bytes, mutate_file
from tests.fuzz.running import Case, Outcome
from tests.support.corpora.collections import json_lines
from tests.support.queries.documents import write_inputs

IDS = [f"q{n}" for n in range(12)]
DOCS = [f"d{n}" for n in range(30)]
NEGATIVES = json_lines([{"qid": q, "pos": [DOCS[0]], "neg": {"bm25": DOCS[1:6], "other": DOCS[3:9]}} for q in IDS])
QUERY_LINES = json_lines([{"doc_id": d, "queries": ["what is it", "why"]} for d in DOCS]) + b"d3\ta query of columns\n"
RUN = b"".join(b"q%d Q0 d%d %d %.2f tag\n" % (n // 5, n, n % 5 + 1, 9 - n % 5) for n in range(40))


def targets(root: Path) -> dict[str, Case]:
    inputs = write_inputs(root / "documents")
    return {
        "negatives": partial(_negatives, inputs),
        "scores": partial(_scores, inputs),
        "queries of passages": partial(_given, inputs),
        "trec runs": _runs,
    }


def _written(rng: random.Random, folder: Path, name: str, data: bytes) -> Path:
    """The data, changed, in a file that may be packed."""
    path = folder / (f"{name}.gz" if rng.random() < 0.3 else name)
    path.write_bytes(mutate_file(rng, path.name, gzip.compress(data, 1) if path.suffix == ".gz" else data))
    return path


def _lines_of(path: Path) -> list[str]:
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return [line for line in data.decode(errors="replace").split("\n") if line.strip()]


def _negatives(inputs: Inputs, rng: random.Random, folder: Path) -> Outcome:
    path = _written(rng, folder, "x.jsonl", NEGATIVES)
    config = ReadNegativesConfig(file=str(path))
    result = read_negatives(config, inputs, Place(str(folder / "out")))
    refused = sum(result["refused"].values())
    assert (folder / "out/quarantine.jsonl").read_bytes().count(b"\n") == refused
    rows = [json.loads(line.removeprefix("\ufeff")) for line in _lines_of(path)]
    listed = sum(sum(map(len, row["neg"].values())) for row in rows)
    assert result["candidates"] + refused == listed, f"{listed} entries, and {result}"
    return "quarantined" if refused else "succeeded"


def _scores(inputs: Inputs, rng: random.Random, folder: Path) -> Outcome:
    path, scores = folder / "x.parquet", [float(n) for n in range(5)]
    rows = [{"query_id": query, "corpus_id": DOCS[:5], "score": scores} for query in IDS]
    pq.write_table(pa.Table.from_pylist(rows), path, use_dictionary=rng.random() < 0.5)
    if rng.random() < 0.7:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    result = read_scores(ReadScoresConfig(file=str(path)), inputs, Place(str(folder / "out")))
    return "quarantined" if result["pairs_of_unknown_queries"] else "succeeded"


def _given(inputs: Inputs, rng: random.Random, folder: Path) -> Outcome:
    """Queries of a file, sorted into the corpus's shards."""
    path = _written(rng, folder, "x.jsonl", QUERY_LINES)
    out = Place(str(folder / "out"))
    PSEUDO_QUERIES(PseudoQueriesConfig(source=f"file:{path}"), inputs, out)
    counts = (out / "given.json").read_json()
    assert counts["lines"] == len(_lines_of(path)), f"{len(_lines_of(path))} lines, and {counts}"
    bad = sum(number for name, number in counts.items() if name not in ("lines", "kept"))
    assert (folder / "out/quarantine.jsonl").read_bytes().count(b"\n") == bad
    return "quarantined" if bad else "succeeded"


def _runs(rng: random.Random, folder: Path) -> Outcome:
    path = _written(rng, folder, "run", RUN)
    table = ranked.read_trec(Place(str(path)))
    assert len(table) == len(_lines_of(path)), f"{len(_lines_of(path))} lines, and {len(table)} rows"
    try:
        ranked.write_trec(Place(str(folder / "again.gz")), table, tag="x")
    except UserError as error:
        raise AssertionError("what was read cannot be written") from error
    return "succeeded"
