"""What the comparison of two homes must notice."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Place, produce
from tests.system.cluster.compare import OF_RUN, contents, differences, identities, rewritten, unlike_trainings


def write(
    home: Path, *, value: float = 1.0, seconds: float = 1.0, loss: float = 2.0, lexical: str | None = None
) -> Path:
    """A finished search and a training; where the file of the search lies."""

    def search(out: Place) -> dict[str, object]:
        (out / "scores.npy").write(np.float64(value).tobytes())
        return {"measure": value, "seconds": seconds, "workers": 2}

    def train(out: Place) -> dict[str, object]:
        Path(out.uri).mkdir(parents=True, exist_ok=True)
        trace = {"loss": [3.0, loss], "seconds": [seconds, seconds]}
        pq.write_table(pa.table(trace), Path(out.uri) / "trace.parquet")
        return {"loss": loss}

    for step, make in (("pretrain", train), ("search", search)):
        inputs = {"start": f"{home}/store/pretrain/p"}
        record = {
            "step": step,
            "fingerprint": "f",
            "config": {"representation": {"lexical": lexical}},
            "inputs": inputs,
        }
        made = produce(Place(str(home / "store" / step / "f")), record, make)
    return made.place.local() / "scores.npy"


def test_only_what_tells_a_time_or_a_place_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "one")
    expected = contents(tmp_path / "one")
    write(tmp_path / "value", value=1.0000001)
    assert differences(expected, contents(tmp_path / "value")) == [
        *("differs: search/f/record.json", "differs: search/f/scores.npy")
    ]
    write(tmp_path / "loss", loss=2.5)
    assert len(differences(expected, contents(tmp_path / "loss"))) == 2, "the training's record and its trace"
    write(tmp_path / "slow", seconds=2.0)
    assert differences(expected, contents(tmp_path / "slow")) == []
    assert len(differences(expected, {})) == len(differences({}, expected)) == len(expected) == 4
    assert contents(tmp_path / "one", OF_RUN)["search/f/record.json"] != expected["search/f/record.json"]


def test_a_finished_file_that_is_written_again_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path)
    before = identities(tmp_path)
    assert rewritten(before, identities(tmp_path)) == []
    Place(str(path)).write(path.read_bytes())
    assert len(rewritten(before, identities(tmp_path))) == 1


@pytest.mark.parametrize(
    ("loss", "lexical", "wrong"), [(2.0, None, 0), (2.001, None, 1), (2.001, "splade", 0), (2.01, "splade", 1)]
)
def test_losses_may_differ_by_rounding_alone(tmp_path: Path, loss: float, lexical: str | None, wrong: int) -> None:
    write(tmp_path / "one", lexical=lexical)
    write(tmp_path / "two", lexical=lexical, loss=loss)
    lines, most = unlike_trainings(tmp_path / "one", tmp_path / "two")
    assert len(lines) == wrong and most == pytest.approx(loss / 2 - 1)
    assert len(unlike_trainings(tmp_path / "one", tmp_path / "none")[0]) == 1, "a training that is not there"
