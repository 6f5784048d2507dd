"""Money: hours and requests times prices that are data; and what a plan asks of an object store."""

from dataclasses import replace

import pytest

from midmask.artifact import Place, load
from midmask.errors import UserError
from midmask.estimate import Estimate, as_text, estimate, shape_named
from midmask.estimate.prices import VARIABLE, priced, read_prices
from midmask.estimate.storage import WHOLE
from midmask.estimate.traffic import Traffic
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection
from tests.support.object_store import object_store

OWN = """
source = "our contract, 2026"
device_hour = {H100 = 2.5}
store = {writes = 0.01, reads = 0.001, gib_month = 0.02}
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> Estimate:
    folder = tmp_path_factory.mktemp("prices")
    recipe = override(RECIPES["mlm"](), {"corpus.name": write_collection(folder / "tiny")})
    return estimate([plan(recipe).evaluation(recipe.evaluation)], Place(str(folder / "store")), shape_named("4xH100"))


def test_hours_of_every_device_and_requests_are_paid(told, tmp_path, monkeypatch):
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
    [
        ("2.5", "-2.5", r"own\.toml: device_hour\.H100 = -2\.5: input should be greater than or equal to 0"),
        ("reads = 0.001, ", "", r"own\.toml: store\.reads: a value is required"),
        ("source", "vat = 0.19\nsource", r"own\.toml: vat: no such field"),
    ],
)
def test_a_wrong_price_list_is_refused(old, new, message, tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text(OWN.replace(old, new))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.toml"))
    with pytest.raises(UserError, match=message):
        read_prices()


@pytest.fixture(scope="module")
def short_recipe(tmp_path_factory) -> Recipe:
    return short(RECIPES["retromae"](), write_collection(tmp_path_factory.mktemp("traffic") / "tiny"))


def test_every_byte_goes_up_once_and_comes_down_as_often_as_it_is_read(short_recipe):
    with object_store() as options:
        storage = Place(f"s3://bucket/store?{options}")
        steps = plan(short_recipe)
        Runner(storage, LOCAL, Silent()).run(steps.corpus)
        done = sum(file["size"] for file in load(steps.corpus.place(storage)).record["files"].values())
        told = estimate([steps.evaluation(short_recipe.evaluation)], storage, shape_named("2xH100"), workers=2)
    own = {charge.step.fingerprint: charge.bytes for charge in told.charges}
    sizes = {**own, steps.corpus.fingerprint: done}
    read = sum(sizes[source.fingerprint] for charge in told.charges for source in charge.step.inputs.values())
    trained = [one.training for one in told.charges if one.training is not None]
    asked = told.traffic
    assert asked.up == pytest.approx(sum(own.values()))
    assert asked.down == pytest.approx(sum(own.values()) + read)
    assert asked.exchanged == pytest.approx(sum(2 * WHOLE * one.counted.parameters * one.steps for one in trained))
    assert estimate([steps.tokens], Place("/nowhere"), shape_named("2xH100")).traffic is None, "a disk has none"
