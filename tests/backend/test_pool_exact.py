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
from midmask.retrieve.blocks import SELECTION, blocks_in, passage_blocks
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views
from tests.support.cluster.five_actors import COUNTS
from tests.support.retrieve.collection import encoded, write_all

pytestmark = pytest.mark.xdist_group("ray")

DEPTH = 25
KINDS = {"dense": ("dense",), "lexical": ("lexical",), "hybrid": ("dense", "lexical")}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_all(Place(str(tmp_path_factory.mktemp("collection"))))


@pytest.fixture(scope="module")
def vectors(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return encoded(inputs, Place(str(tmp_path_factory.mktemp("encoded"))))


def planted(root: Path, kind: str, vectors: dict[str, Artifact]) -> np.ndarray:
    """Writes encodings of few whole numbers to `root`, as if a model had made them; returns the scores of all pairs."""
    draw = np.random.default_rng(0)
    all_views: dict[str, list[np.ndarray]] = {}
    for name in ("queries", "passages"):
        place, parts = Place(str(root / name)), []
        (root / name).mkdir(parents=True)
        if name == "queries":
            (root / name / SELECTION).write_bytes((vectors[name].place / SELECTION).read())
            blocks = blocks_in([place / SELECTION])
        else:
            blocks = passage_blocks(vectors["tokens"].place)
        for block in blocks:
            dense_ND = draw.integers(-1, 2, (block.rows, 5)).astype(np.float32)
            lexical_NV = (draw.integers(-1, 3, (block.rows, 30)) * (draw.random((block.rows, 30)) < 0.2)).astype(
                np.float32
            )
            own = {"dense": dense_ND, "lexical": lexical_NV}
            rows = SparseRows.top(lexical_NV, None) if "lexical" in KINDS[kind] else None
            Views(dense_ND if "dense" in KINDS[kind] else None, rows).write(place, block.name)
            parts.append(np.concatenate([own[view] for view in KINDS[kind]], axis=1))
        all_views[name] = np.concatenate(parts).astype(np.float64)
        result = {**vectors[name].result, "views": KINDS[kind]}
        (root / name / RECORD).write_text(json.dumps({**vectors[name].record, "result": result}))
    (root / "tokens").symlink_to(vectors["tokens"].place.uri)
    (root / "tokens" / RECORD).write_text(json.dumps(vectors["tokens"].record))
    return all_views["queries"] @ all_views["passages"].T


def best_of(scores_QN: np.ndarray, query_ids: list[str], doc_ids: list[str]) -> list[tuple[str, str, float, int]]:
    """The ranked list by a plain sort."""
    found = []
    for query_id, scores in zip(query_ids, scores_QN.astype(np.float32).tolist(), strict=True):
        order = sorted(range(len(doc_ids)), key=lambda row: (-scores[row], doc_ids[row]))[:DEPTH]
        found += [(query_id, doc_ids[row], scores[row], rank) for rank, row in enumerate(order, start=1)]
    return found


@pytest.mark.slow
def test_one_two_and_five_actors_equal_brute_force_with_exact_ties(vectors, tmp_path: Path):
    scores = {kind: planted(tmp_path / kind, kind, vectors) for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as session:
        command = [
            sys.executable,
            "-m",
            "tests.support.cluster.five_actors",
            session,
            *(str(tmp_path / kind) for kind in KINDS),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    doc_ids = [
        name
        for block in passage_blocks(vectors["tokens"].place)
        for name in block.read(["doc_id"])["doc_id"].to_pylist()
    ]
    query_ids = pq.read_table((vectors["queries"].place / SELECTION).uri)["query_id"].to_pylist()
    for kind, scores_QN in scores.items():
        files = [tmp_path / kind / str(count) / "ranked" / "train.parquet" for count in COUNTS]
        assert len({file.read_bytes() for file in files}) == 1, kind
        rows = ranked.read(Place(str(files[0]))).to_pylist()
        assert [tuple(row.values()) for row in rows] == best_of(scores_QN, query_ids, doc_ids), kind
        assert len({(row["query_id"], row["score"]) for row in rows}) < len(rows) / 2, f"{kind}: too few ties"
