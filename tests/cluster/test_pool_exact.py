"""What 1, 2 and 5 actors find against brute force in NumPy, in float64, with exact ties within and across shards."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.artifact import RECORD, Artifact, Place
from midmask.retrieve import ranked
from tests.cluster.five_actors import COUNTS
from tests.retrieve.collection import encoded, write_all

DEPTH = 25


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_all(Place(str(tmp_path_factory.mktemp("collection"))))


def recorded(artifact: Artifact) -> None:
    Path(artifact.place.uri, RECORD).write_text(json.dumps(artifact.record))


def plant_dense(vectors: dict[str, Artifact]) -> np.ndarray:
    """Vectors of few whole numbers in place of the encoder's; returns the scores of all pairs."""
    draw = np.random.default_rng(0)
    planted = {}
    for name in ("queries", "passages"):
        files = sorted(Path(vectors[name].place.uri, "dense").iterdir())
        blocks = [draw.integers(-1, 2, (len(np.load(file)), 5)).astype(np.float32) for file in files]
        for file, block in zip(files, blocks, strict=True):
            np.save(file, block)
        planted[name] = np.concatenate(blocks).astype(np.float64)
    return planted["queries"] @ planted["passages"].T


def best_of(scores_QN: np.ndarray, query_ids: list[str], doc_ids: list[str]) -> list[tuple[str, str, float, int]]:
    """The ranked list by a plain sort."""
    found = []
    for query_id, scores in zip(query_ids, scores_QN.astype(np.float32).tolist(), strict=True):
        order = sorted(range(len(doc_ids)), key=lambda row: (-scores[row], doc_ids[row]))[:DEPTH]
        found += [(query_id, doc_ids[row], scores[row], rank) for rank, row in enumerate(order, start=1)]
    return found


def test_one_two_and_five_actors_equal_brute_force_with_exact_ties(inputs, tmp_path: Path):
    root = tmp_path / "dense"
    vectors = encoded(inputs, Place(str(root)))
    scores_QN = plant_dense(vectors)
    (root / "tokens").symlink_to(inputs["tokens"].place.uri)
    for artifact in vectors.values():
        recorded(artifact)
    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as session:
        command = [sys.executable, "-m", "tests.cluster.five_actors", session, str(root)]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lists = [(root / str(count) / "ranked" / "train.parquet").read_bytes() for count in COUNTS]
    assert lists[0] == lists[1] == lists[2]
    folder = Path(inputs["tokens"].place.uri, "passages")
    doc_ids = [name for file in sorted(folder.iterdir()) for name in pq.read_table(file)["doc_id"].to_pylist()]
    query_ids = pq.read_table(root / "queries" / "selection.parquet")["query_id"].to_pylist()
    rows = ranked.read(Place(str(root / "1" / "ranked" / "train.parquet"))).to_pylist()
    assert [tuple(row.values()) for row in rows] == best_of(scores_QN, query_ids, doc_ids)
    assert len({(row["query_id"], row["score"]) for row in rows}) < len(rows) / 3, "too few ties to show anything"
