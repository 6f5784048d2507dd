"""A recipe with a consistency filter: its steps, what they depend on, and what the middle training then reads."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from midmask.artifact import Place, load
from midmask.experiment.needed_splits import refuse_missing_splits
from midmask.experiment.plan import Plan, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL, pretrain_setup
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection

TWO = {"pseudo_queries.keep_rank": 2}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    corpus = write_collection(tmp_path_factory.mktemp("consistency") / "tiny")
    return override(short(RECIPES["e5"](), corpus), {"pseudo_queries.source": "sentences"})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(str(tmp_path_factory.mktemp("store")))


def judged(recipe: Recipe, judge: str, **changes: Any) -> Plan:
    filtered = override(recipe, {"pseudo_queries.judged_by": judge, **TWO, **changes})
    filtered.check()
    found = plan(filtered)
    assert found.pretrained is not None
    refuse_missing_splits([found.pretrained])
    return found


def names(found: Plan) -> list[str]:
    assert found.pretrained is not None
    return [step.name for step in found.pretrained.upstream()]


def test_the_middle_training_on_all_pairs_judges_and_is_that_of_the_recipe_without_a_filter(recipe: Recipe) -> None:
    found, before = judged(recipe, "middle_training"), plan(recipe)
    assert found.pretrained is not None and before.pretrained is not None
    first, second = [step for step in found.pretrained.upstream() if step.name == "pretrain"]
    assert first.fingerprint == before.pretrained.fingerprint != second.fingerprint
    assert second.inputs["pseudo_queries"].fingerprint == found.pseudo_queries.fingerprint
    assert "keep_pairs" not in names(before)


def test_the_filter_and_what_the_judge_holds_are_part_of_the_identity_and_the_pairs_are_shared(
    recipe: Recipe, store: Place, tmp_path: Path
) -> None:
    folder = trained_folder(recipe, store)
    (other := tmp_path / "other").mkdir()
    for file in folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    plans = [
        plan(recipe),
        judged(recipe, "bm25"),
        judged(recipe, "bm25", **{"pseudo_queries.keep_rank": 3}),
        judged(recipe, "middle_training"),
        judged(recipe, str(folder)),
        judged(recipe, str(other)),
    ]
    assert len({found.pretrained.fingerprint for found in plans if found.pretrained}) == len(plans)
    made = {found.pseudo_queries.inputs["pairs"].fingerprint for found in plans[1:]}
    assert made == {plans[0].pseudo_queries.fingerprint}


def trained_folder(recipe: Recipe, store: Place) -> Path:
    """The model of the recipe's middle training on all pairs."""
    before = plan(recipe)
    assert before.pretrained is not None
    return Path(Runner(store, LOCAL, Silent()).run(before.pretrained).place.local()) / "model"


@pytest.mark.parametrize("judge", ["bm25", "folder"])
def test_the_middle_training_reads_the_kept_pairs_alone(recipe: Recipe, store: Place, judge: str) -> None:
    found = judged(recipe, str(trained_folder(recipe, store)) if judge == "folder" else judge)
    assert found.pretrained is not None
    done = Runner(store, LOCAL, Silent()).run(found.pretrained)
    kept = load(found.pseudo_queries.place(store))
    assert 0 < kept.result["dropped"] < kept.result["judged"] == 48
    assert kept.result["queries"] + kept.result["dropped"] == 48
    table = pq.read_table(Path(kept.place.local()) / "pseudo_queries").to_pylist()
    wanted = [row["doc_id"] for row in table if row["queries"]]
    sources = {name: load(step.place(store)) for name, step in found.pretrained.inputs.items()}
    source = pretrain_setup(found.pretrained.config, sources).rows.open()  # type: ignore[arg-type]
    assert [name for row in range(source.count) for name in source.names([row])] == wanted  # type: ignore[arg-type]
    assert done.result["steps"] == 3
