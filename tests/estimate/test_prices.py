"""Money, what a plan asks of an object store, volumes, cluster shapes, and counts that are remembered."""

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from midmask.artifact import Place, load
from midmask.corpora import CorpusConfig
from midmask.errors import UserError
from midmask.estimate import as_text, estimate, shape_named
from midmask.estimate.devices import DEVICES, this_machine
from midmask.estimate.prices import VARIABLE, priced, read_prices
from midmask.estimate.remembered import remembered
from midmask.estimate.storage import WHOLE
from midmask.estimate.traffic import Traffic
from midmask.estimate.volumes import Volumes
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection
from tests.support.corpora.saved import save
from tests.support.object_store import object_store

OWN = """
source = "our contract, 2026"
device_hour = {H100 = 2.5}
store = {writes = 0.01, reads = 0.001, gib_month = 0.02}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    return short(RECIPES["retromae"](), write_collection(tmp_path_factory.mktemp("prices") / "tiny"))


def test_hours_of_every_device_and_requests_are_paid(recipe, tmp_path, monkeypatch):
    told = estimate([plan(recipe).evaluation(recipe.evaluation)], Place(str(tmp_path)), shape_named("4xH100"))
    told = replace(told, charges=[replace(charge, alone_seconds=36_000.0) for charge in told.charges])
    (tmp_path / "own.toml").write_text(OWN)
    assert all(shape_named(name).device.name == name for name in read_prices().device_hour), "shipped prices"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.toml"))
    hours = 4 * told.total_hours
    paid = f"price: {2.5 * hours:,.2f} USD for {hours:,.1f} hours of one H100 at 2.5"
    assert priced(told) == f"{paid} (our contract, 2026)"
    asked = replace(told, traffic=Traffic(writes=2e6, reads=3e6, up=0, down=0, exchanged=0))
    month = 0.02 * told.total_bytes / 2**30
    assert f"at 2.5, 23.00 for requests, {month:,.2f} for each month in the store (our" in priced(asked)
    assert priced(asked) in as_text(asked)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("2.5", "-2.5", r"own\.toml: device_hour\.H100 = -2\.5"), ("reads", "r", "reads: a ")],
)
def test_a_wrong_price_list_is_refused(old, new, message, tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text(OWN.replace(old, new))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.toml"))
    with pytest.raises(UserError, match=message):
        read_prices()


def test_every_byte_goes_up_once_and_comes_down_as_often_as_it_is_read(recipe):
    with object_store() as options:
        storage = Place(f"s3://bucket/store?{options}")
        steps = plan(recipe)
        Runner(storage, LOCAL, Silent()).run(steps.corpus)
        done = sum(file["size"] for file in load(steps.corpus.place(storage)).record["files"].values())
        told = estimate([steps.evaluation(recipe.evaluation)], storage, shape_named("2xH100"), workers=2)
    own = {charge.step.fingerprint: charge.bytes for charge in told.charges}
    sizes = {**own, steps.corpus.fingerprint: done}
    read = sum(sizes[source.fingerprint] for charge in told.charges for source in charge.step.inputs.values())
    trained = [one.training for one in told.charges if one.training is not None]
    asked = told.traffic
    assert asked.up == pytest.approx(sum(own.values()))
    assert asked.down == pytest.approx(sum(own.values()) + read)
    assert asked.exchanged == pytest.approx(sum(2 * WHOLE * one.counted.parameters * one.steps for one in trained))
    assert estimate([steps.tokens], Place("/nowhere"), shape_named("2xH100")).traffic is None, "a disk has none"


def test_a_shape_is_a_number_of_devices_and_the_memory_of_a_machine_behind_a_colon():
    for text, name in (("4 x a100-40g", "4xA100-40G"), ("2xcpu", "2xcpu"), ("L4", "1xL4"), ("16XT4", "16xT4")):
        assert str(shape_named(text)) == name and shape_named(text).device == DEVICES[name.partition("x")[2].lower()]
    assert shape_named("8xH100:2048").ram == 2048 * 2**30 and shape_named("2xcpu:24").ram == 24 * 2**30
    assert shape_named("8xH100").ram is None and shape_named("2xcpu").ram == this_machine().ram


def test_a_mistaken_shape_is_refused():
    known, wanted = {"8xH10": "did you mean 'H100'", "8xA100": "A100-40G, A100-80G"}, "COUNTxDEVICE"
    counts = {"0xH100": "0 devices", "-2xcpu": "-2 devices", "eight H100": wanted, "8xH100:2TB": f"{wanted}:GIB"}
    for text, told in {**known, **counts}.items():
        with pytest.raises(UserError, match=told):
            shape_named(text)


@pytest.mark.parametrize("embedded", [False, True])
def test_saved_datasets_tell_their_passages_whatever_other_columns_there_are(tmp_path, embedded):
    count, draw = 12_000, random.Random(0)
    columns = {"text": pa.array(["word " * draw.randint(10, 80) for _ in range(count)])}
    if embedded:
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(count * 64, np.float32)), 64)
    save(tmp_path / "wiki", pa.table(columns), shards=2)
    volume = Volumes(Place(str(tmp_path / "store"))).corpus(Step("prepare", CorpusConfig(name=f"hf:{tmp_path}/wiki")))
    assert volume.passages == pytest.approx(count, rel=0.15)
    assert volume.mean_characters == pytest.approx(5 * 45, rel=0.1)


def counter(calls: list[tuple[object, ...]]):
    """A function of its own, as another process would have it."""

    @remembered(float)
    def area(side: int, *, scale: float = 1.0) -> float:
        calls.append((side, scale))
        return side * side * scale

    return area


def test_a_count_is_made_once_for_each_argument_and_anew_where_its_file_is_spoilt(tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path))
    calls: list[tuple[object, ...]] = []
    assert [counter(calls)(3), counter(calls)(3), counter(calls)(4), counter(calls)(3, scale=2.0)] == [9, 9, 16, 18]
    assert calls == [(3, 1.0), (4, 1.0), (3, 2.0)]
    for number, content in enumerate(("{", '{"a": 1}'), start=4):
        for file in tmp_path.glob("counts/*.json"):
            file.write_text(content)
        assert counter(calls)(3) == 9.0 and len(calls) == number
    assert sorted(file.read_text() for file in tmp_path.glob("counts/*.json")) == ["9.0", content, content]
