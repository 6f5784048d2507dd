"""Targets: files of negatives, scores, spans, queries, term weights, tokens, pickles and runs."""

import gzip
import json
import pickle
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.derived.given_tokens import ReadTokensConfig, read_tokens
from midmask.derived.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import SPANS
from midmask.derived.terms import WEIGH, WeighConfig
from midmask.errors import UserError
from midmask.mining.given_negatives import ReadNegativesConfig, read_negatives
from midmask.retrieve import ranked
from midmask.sharded import Inputs, Sharded
from midmask.teacher.given_scores import ReadScoresConfig, read_scores
from tests.fuzz.mutating import mutate_bytes, mutate_file, plain
from tests.fuzz.running import Case, Outcome
from tests.support.corpora.collections import json_lines
from tests.support.derived.documents import write_inputs

IDS = [f"q{n}" for n in range(12)]
DOCS = [f"d{n}" for n in range(30)]
NEGATIVES = json_lines([{"qid": q, "pos": [DOCS[0]], "neg": {"bm25": DOCS[1:6], "other": DOCS[3:9]}} for q in IDS])
SPANS_LINES = json_lines([{"doc_id": d, "spans": ["a first span", "another span", "the last"]} for d in DOCS])
QUERY_LINES = json_lines([{"doc_id": d, "queries": ["what is it", "why"]} for d in DOCS]) + b"d3\ta query of columns\n"
WEIGHT_LINES = json_lines([{"id": d, "vector": {"ba": 0.5, "delin": 0.25, "go": 1}} for d in DOCS])
RUN = b"".join(b"q%d Q0 d%d %d %.2f tag\n" % (n // 5, n, n % 5 + 1, 9 - n % 5) for n in range(40))


def targets(root: Path) -> dict[str, Case]:
    inputs = write_inputs(root / "documents")
    return {
        "negatives": partial(_negatives, inputs),
        "scores, parquet": partial(_scores, inputs, _parquet_scores),
        "scores, pickle": partial(_scores, inputs, _pickled_scores),
        "spans": partial(_given, inputs, SPANS, SpansConfig, SPANS_LINES),
        "queries of passages": partial(_given, inputs, PSEUDO_QUERIES, PseudoQueriesConfig, QUERY_LINES),
        "term weights": partial(_given, inputs, WEIGH, WeighConfig, WEIGHT_LINES),
        "tokens": partial(_tokens, inputs),
        "trec runs": _runs,
    }


def _written(rng: random.Random, folder: Path, name: str, data: bytes, *, changed: bool = True) -> Path:
    """The data, mostly changed, in a file that may be packed."""
    packed = rng.random() < 0.3 and not name.endswith(".parquet")
    path = folder / (f"{name}.gz" if packed else name)
    data = gzip.compress(data, 1) if packed else data
    path.write_bytes(mutate_file(rng, path.name, data) if changed else data)
    return path


def _lines_of(path: Path) -> list[str]:
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return [line for line in data.decode(errors="replace").split("\n") if line.strip()]


def _negatives(inputs: Inputs, rng: random.Random, folder: Path) -> Outcome:
    path = _written(rng, folder, "x.jsonl", NEGATIVES)
    config = ReadNegativesConfig(file=str(path), unknown_ids=rng.choice(["refuse", "count", "count"]))
    result = read_negatives(config, inputs, Place(str(folder / "out")))
    refused = sum(result["refused"].values())
    assert (folder / "out/quarantine.jsonl").read_bytes().count(b"\n") == refused
    known = {f"q{n}" for n in range(30)}
    rows = [json.loads(line.removeprefix("\ufeff")) for line in _lines_of(path)]
    listed = sum(sum(map(len, row["neg"].values())) if str(row["qid"]) in known else 1 for row in rows)
    assert result["candidates"] + refused == listed, f"{listed} entries, and {result}"
    return "quarantined" if refused else "succeeded"


def _scores(inputs: Inputs, write: Callable[[random.Random, Path], Path], rng: random.Random, folder: Path) -> Outcome:
    result = read_scores(ReadScoresConfig(file=str(write(rng, folder))), inputs, Place(str(folder / "out")))
    return "quarantined" if result["pairs_of_unknown_queries"] else "succeeded"


CELLS: list[Any] = [
    *(["q1"], [b"\xff"], [True], [3], [0.5], [float("nan")], [1e300], [None], [{"a": 1}], [["q"]], [[[1]]], [[None]])
]
"""Columns of one row, of other types than the readers expect."""


def _table(rng: random.Random, good: dict[str, pa.Array]) -> pa.Table:
    """The good columns, some replaced by others of any type, left out, doubled or under another name."""
    columns = list(good.items())
    for _ in range(rng.choice([0, 1, 1, 2])):
        place = rng.randrange(len(columns))
        name, values = columns[place]
        fate = rng.random()
        if fate < 0.7:
            columns[place] = (name, pa.array(rng.choice(CELLS) * len(values)))
        elif fate < 0.8 and len(columns) > 1:
            del columns[place]
        else:
            columns[place if fate < 0.9 else len(columns) - 1] = (f"{name}s", values)
    return pa.table([values for _, values in columns], names=[name for name, _ in columns])


def _parquet_scores(rng: random.Random, folder: Path) -> Path:
    good = {
        "query_id": pa.array(IDS),
        "corpus_id": pa.array([DOCS[:4]] * len(IDS)),
        "score": pa.array([[1.0, 0.5, -3.0, 2.0]] * len(IDS)),
    }
    path = folder / "x.parquet"
    pq.write_table(_table(rng, good), path, use_dictionary=rng.random() < 0.5)
    if rng.random() < 0.4:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    return path


def _pickled_scores(rng: random.Random, folder: Path) -> Path:
    kind = rng.choice([float, np.float32, np.float64, int, np.int64])
    scores: Any = {query: {doc: kind(n) for n, doc in enumerate(DOCS[:5])} for query in IDS}
    if rng.random() < 0.5:
        scores[rng.choice([*IDS, 5, 2.5, b"q"])] = plain(rng)
    elif rng.random() < 0.3:
        scores[rng.choice(IDS)][rng.choice(["d1", 7, None, 0.5])] = plain(rng)
    data = pickle.dumps(scores, rng.randrange(6))
    return _written(rng, folder, "x.pkl", mutate_bytes(rng, data) if rng.random() < 0.5 else data, changed=False)


def _given(
    inputs: Inputs, step: Sharded, config: Callable[..., Any], lines: bytes, rng: random.Random, folder: Path
) -> Outcome:
    """A step that sorts texts of a file into the corpus's shards."""
    path = _written(rng, folder, "x.jsonl", lines)
    wanted = {"scaling": rng.choice(["passage", "corpus"])} if config is WeighConfig else {}
    out = Place(str(folder / "out"))
    step(config(source=f"file:{path}", **wanted), inputs, out)
    counts = (out / "given.json").read_json()
    assert counts["lines"] == len(_lines_of(path)), f"{len(_lines_of(path))} lines, and {counts}"
    bad = sum(number for name, number in counts.items() if name not in ("lines", "kept"))
    assert (folder / "out/quarantine.jsonl").read_bytes().count(b"\n") == bad
    return "quarantined" if bad else "succeeded"


def _tokens(inputs: Inputs, rng: random.Random, folder: Path) -> Outcome:
    lists = [[rng.randrange(5, 60) for _ in range(rng.randrange(4, 9))] for _ in range(20)]
    good = {"doc_id": pa.array(DOCS[:20]), "input_ids": pa.array(lists)}
    (folder / "in").mkdir()
    table, end = _table(rng, good), rng.choice(["parquet", "stream", "file"])
    path = folder / "in" / ("x.parquet" if end == "parquet" else "x.arrow")
    if end == "parquet":
        pq.write_table(table, path)
    else:
        opened = pa.ipc.new_stream if end == "stream" else pa.ipc.new_file
        with opened(str(path), table.schema) as writer:
            writer.write_table(table)
    if rng.random() < 0.5:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    config = ReadTokensConfig(folder=str(folder / "in"), max_length=32)
    result = read_tokens(config, {"like": inputs["tokens"]}, Place(str(folder / "out")))
    bad = sum(result["rows_quarantined"].values())
    assert result["rows_read"] == result["rows_kept"] + bad
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
