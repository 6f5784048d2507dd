"""Money: hours and requests times prices that are data."""

from dataclasses import replace
from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.estimate import Estimate, as_text, estimate, shape_named
from midmask.estimate.prices import VARIABLE, priced, read_prices
from midmask.estimate.traffic import Traffic
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import write_collection

OWN = """
source = "our contract, 2026"
device_hour = {H100 = 2.5}
store = {writes = 0.01, reads = 0.001, gib_month = 0.02}
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Estimate:
    folder = tmp_path_factory.mktemp("prices")
    recipe = RECIPES["mlm"]()
    recipe = recipe.model_copy(
        update={"corpus": recipe.corpus.model_copy(update={"name": write_collection(folder / "tiny")})}
    )
    return estimate([plan(recipe).evaluation(recipe.evaluation)], Place(str(folder / "store")), shape_named("4xH100"))


def test_hours_of_every_device_and_requests_are_paid(told, tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text(OWN)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.toml"))
    hours = 4 * told.total_hours
    paid = f"price: {2.5 * hours:,.2f} USD for {hours:,.1f} hours of one H100 at 2.5"
    assert priced(told) == f"{paid} (our contract, 2026)"
    asked = replace(told, traffic=Traffic(writes=2e6, reads=3e6, up=0, down=0, exchanged=0))
    month = 0.02 * told.total_bytes / 2**30
    assert f"at 2.5, 23.00 for requests, {month:,.2f} for each month in the store (our" in priced(asked)
    assert priced(asked) in as_text(asked)


def test_what_has_no_price_says_where_to_write_one(told):
    other = replace(told, shape=shape_named("1xL4"))
    assert "none is known for L4" in priced(other) and VARIABLE in priced(other)
    assert priced(replace(told, shape=replace(told.shape, label="this machine"))) == ""
    assert priced(replace(told, shape=shape_named("8xcpu"))) == ""


def test_shipped_prices_say_where_they_are_from_and_of_when(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    prices = read_prices()
    assert "20" in prices.source
    assert all(shape_named(name).device.name == name for name in prices.device_hour)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source = 1 2", "Expected newline"),
        (
            OWN.replace("2.5", "-2.5"),
            r"own\.toml: device_hour\.H100 = -2\.5: input should be greater than or equal to 0",
        ),
        (OWN.replace("reads = 0.001, ", ""), r"own\.toml: store\.reads: a value is required"),
        (OWN + "vat = 0.19", r"own\.toml: vat: no such field"),
        (None, "No such file"),
    ],
)
def test_a_wrong_price_list_is_one_line(text, message, tmp_path, monkeypatch):
    path = Path(tmp_path / "own.toml")
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(UserError, match=message) as error:
        read_prices()
    assert "\n" not in str(error.value) and str(path) in str(error.value) and "prices.toml" in str(error.value)
