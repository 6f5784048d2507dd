"""What the comparison of two stores must notice."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from midmask.artifact import Place, produce
from tests.scale.compare import same_bytes, trainings


def write(
    home: Path,
    *,
    value: float = 1.0,
    seconds: float = 1.0,
    loss: float = 2.0,
    weight: float = 0.5,
    lexical: str | None = None,
) -> None:
    """A search and a training."""

    def search(out: Place) -> dict[str, object]:
        (out / "scores.npy").write(np.float64(value).tobytes())
        return {"measure": value, "seconds": seconds, "workers": int(seconds)}

    def train(out: Place) -> dict[str, object]:
        folder = Path(out.uri)
        (folder / "model").mkdir(parents=True)
        save_file({"w": np.full(1000, weight, np.float32)}, folder / "model" / "model.safetensors")
        pq.write_table(pa.table({"loss": [3.0, loss]}), folder / "trace.parquet")
        return {"loss": loss}

    for step, make in (("search", search), ("pretrain", train)):
        record = {"step": step, "fingerprint": "f", "config": {"representation": {"lexical": lexical}}, "inputs": {}}
        produce(Place(str(home / "store" / step / "f")), record, make)


def test_times_and_workers_are_no_difference(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", seconds=9.0, loss=5.0)
    found = same_bytes(tmp_path / "a", [tmp_path / "b"])
    assert (found.equal, found.apart) == (2, []), "the training is another matter"


def test_another_value_and_a_file_too_few_are(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", value=1.5)
    apart = same_bytes(tmp_path / "a", [tmp_path / "b"]).apart
    assert apart == ["differs: search/f/record.json", "differs: search/f/scores.npy"]
    (tmp_path / "none" / "store").mkdir(parents=True)
    assert same_bytes(tmp_path / "a", [tmp_path / "none"]).apart == [
        "only in one store: search/f/record.json",
        "only in one store: search/f/scores.npy",
    ]
    assert same_bytes(tmp_path / "a", [tmp_path / "none", tmp_path / "a"]).apart == []


def test_trainings_are_held_against_each_other_by_loss_and_weights(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", loss=2.02, weight=0.75)
    (found,) = trainings(tmp_path / "a", tmp_path / "b")
    assert found.name == "pretrain/f"
    assert (found.loss, found.weights, found.most) == (pytest.approx(0.01), 1.0, 0.25)
    (equal,) = trainings(tmp_path / "a", tmp_path / "a")
    assert (equal.loss, equal.weights, equal.most) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("lexical", "loss", "alike"), [(None, 2.0001, False), ("splade", 2.0001, True)])
def test_a_loss_by_words_may_differ_by_more(tmp_path: Path, lexical: str | None, loss: float, alike: bool) -> None:
    write(tmp_path / "a", lexical=lexical)
    write(tmp_path / "b", lexical=lexical, loss=loss)
    (found,) = trainings(tmp_path / "a", tmp_path / "b")
    assert found.is_alike is alike
    write(tmp_path / "c", lexical=lexical, loss=2.01)
    assert not trainings(tmp_path / "a", tmp_path / "c")[0].is_alike


def test_a_training_that_is_not_there_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "b" / "store").mkdir(parents=True)
    with pytest.raises(ValueError, match="pretrain/f"):
        trainings(tmp_path / "a", tmp_path / "b")
