"""What a plan asks of an object store."""

import pytest

from midmask.artifact import Place, load
from midmask.estimate import estimate, shape_named
from midmask.estimate.storage import WHOLE
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection
from tests.support.object_store import object_store


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    return short(RECIPES["retromae"](), write_collection(tmp_path_factory.mktemp("traffic") / "tiny"))


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
