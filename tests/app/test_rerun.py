"""A run's command makes its recipe again, whatever was changed; what it cannot make is told."""

from pathlib import Path

import pytest

from midmask.app.driver import recipe_for
from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.app.rerun import Wanted, rerun
from midmask.app.run_contents import MODEL_PARAM
from midmask.errors import UserError
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import adopted
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.published import at_scale
from midmask.retrieve.run_file import run_digest
from tests.support.params import params_of

CHANGED: dict[str, object] = {
    "corpus.name": "texts:/data/my corpus; it's big",
    "objective.encoder_mask_ratio": 0.15,
    "pretrain.seed": 11,
    "evaluation.measures": ["nDCG@10", "R@100"],
    "stages.0.train.learning_rate": 3e-5,
}

AT_HAND: dict[str, object] = {"backbone.name": "base", "tokens.tokenizer": None}

CASES = {
    "as it stands": RECIPES["retromae"](),
    "changed": override(RECIPES["retromae"](), CHANGED),
    "no objective": RECIPES["none"](),
    "protocol": PROTOCOLS["lexmae"]().on(RECIPES["mlm"](), "demo"),
    "published sizes": override(at_scale(RECIPES["cotmae"](), "cotmae", "published"), AT_HAND),
    "a word that reads as a value": override(RECIPES["mlm"](), {"backbone.experts": "none", "tokens.tokenizer": None}),
    "collections of its own": override(RECIPES["dupmae"](), {"pretrain_on": ["texts:/a b", "texts:/c"]}),
    "another loss": override(
        RECIPES["mlm"](),
        {
            "stages.0.loss": {"name": "distillation", "teacher_temperature": 2.0},
            "stages.0.teacher": {"folder": "/models/teacher"},
            "stages.0.negatives": ["bm25"],
            "stages.0.per_query": 3,
        },
    ),
}


def made_by(arguments: tuple[str, ...], tmp_path: Path) -> Recipe:
    """The recipe that a job makes of these arguments."""
    job, *flags = arguments
    parsed = parse([flag for flag in flags], None)
    return recipe_for(resolve(parsed, tmp_path / job), default="retromae")


@pytest.mark.parametrize("recipe", CASES.values(), ids=CASES)
def test_a_job_makes_the_same_recipe_of_it(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDMASK_HOME", str(tmp_path))
    found = rerun(Wanted({"midmask.step": "pretrain"}, params_of(recipe)))
    assert found.differs == () and found.newer == () and found.arguments[0] == "jobs/pretrain.py"
    assert made_by(found.arguments, tmp_path) == recipe


def test_an_evaluated_folder_is_reached_by_its_flag_unless_it_has_changed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = params_of(RECIPES["none"]()) | {MODEL_PARAM: adopted(str(tmp_path)).fingerprint}
    wanted = Wanted({"midmask.step": "evaluate"}, before, split="test", model=str(tmp_path))
    assert rerun(wanted).differs == ()
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert rerun(wanted).differs == (MODEL_PARAM,)


def test_the_command_of_a_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDMASK_HOME", str(tmp_path))
    file = tmp_path / "a b.trec"
    file.write_text("q Q0 d 1 1.0 x\n")
    recipe = override(RECIPES["none"](), {"corpus.name": "beir:/x", "corpus.splits": "official", "evaluation.depth": 7})
    fields = ("corpus.", "evaluation.depth", "evaluation.measures", "evaluation.max_queries")
    params = {path: text for path, text in params_of(recipe).items() if path.startswith(fields)}
    own = {"evaluation.split": "test", "run.digest": run_digest(file), "run.ties": "trec_eval"}
    tags = {"midmask.step": "evaluate", "midmask.recipe": "other", "midmask.run_file": str(file)}
    tags |= {"midmask.artifact": "/store/evaluate/0123"}
    wanted = Wanted(tags, {**params, **own}, split="test")
    found = rerun(wanted)
    job, name, *flags = found.arguments
    assert (job, name, found.differs) == ("jobs/evaluate_run.py", str(file), ())
    told = {"--name": "other", "--corpus": "beir:/x", "--split": "test", "--ties": "trec_eval", "--storage": "/store"}
    assert all(flags[flags.index(flag) + 1] == value for flag, value in told.items())
    assert [flags[at + 1] for at, flag in enumerate(flags) if flag == "--set"] == [
        "corpus.splits=official",
        "evaluation.depth=7",
    ]
    without = Wanted(tags, {**params, **own, "run.leave_out_copies": "True"}, split="test")
    assert "--leave-out-copies" not in flags and "--leave-out-copies" in rerun(without).arguments
    file.write_text("q Q0 d 1 2.0 x\n")
    assert rerun(wanted).differs == ("run.digest",)
    file.unlink()
    assert rerun(wanted).differs == ("run.digest",)


def test_what_cannot_be_reached_is_told() -> None:
    params = params_of(RECIPES["retromae"]())
    older = {path: text for path, text in params.items() if path != "pretrain.log_every"}
    assert rerun(Wanted({}, older)).newer == ("pretrain.log_every",)
    assert rerun(Wanted({}, {**params, "objective.gone": "3"})).differs == ("objective.gone",)
    assert rerun(Wanted({}, {**params, "pretrain.steps": "12 [cut, 9000 characters]"})).differs
    with pytest.raises(UserError, match="recipe"):
        rerun(Wanted({"midmask.recipe": "retromea"}, {}))
