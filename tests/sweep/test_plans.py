"""Sweeps before they run."""

from dataclasses import replace
from pathlib import Path

import pytest

from midmask.app.flags import add_sweep_flags, parse
from midmask.app.job import Options, resolve
from midmask.errors import UserError
from midmask.recipes import RECIPES
from midmask.sweep.job import sweep
from midmask.sweep.plan import sweep_for
from midmask.sweep.space import Space
from tests.support.benchmark.tiny import write_collection

RATIO = {"objective.decoder_mask_ratio": {"values": [0.5, 0.7]}}


@pytest.fixture
def options(tmp_path: Path) -> Options:
    given = ["--corpus", write_collection(tmp_path / "words"), "--storage", str(tmp_path / "store")]
    return resolve(parse([*given, "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"], None))


def space(**fields) -> Space:
    return Space.model_validate({"name": "s", "recipe": "retromae", "parameters": RATIO, **fields})


def test_settings_and_flags_reach_the_baselines_but_for_the_methods_own(options):
    settings = {"objective.encoder_mask_ratio": 0.2, "pretrain.steps": 7}
    asked = replace(options, set_fields={"objective.decoding": "basic", "backbone.dropout": "0.1"}, seed=5)
    one = sweep_for(asked, space(settings=settings, baselines=["none", "mlm"]))
    none, mlm = one.baselines
    assert (one.recipe.objective.encoder_mask_ratio, one.recipe.objective.decoding) == (0.2, "basic")
    assert none.objective is None and mlm.objective == RECIPES["mlm"]().objective
    for recipe in (one.recipe, none, mlm):
        assert (recipe.pretrain.steps, recipe.backbone.dropout, recipe.stages[0].train.seed) == (7, 0.1, 5)
        assert recipe.corpus.name == options.corpus


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"measure": "NDCG@10"}, ["'NDCG@10'", "nDCG@10", "bytes_per_passage", "evaluation.measures"]),
        ({"settings": {"evaluation.measures": ["RR@10"]}}, ["'nDCG@10'", "(RR@10)"]),
        ({"protocol": "in_bath"}, ["'in_bath'", "did you mean 'in_batch'"]),
        ({"baselines": ["mlmm"]}, ["'mlmm'", "did you mean 'mlm'"]),
        ({"parameters": {"objective.layers": {"values": [1]}}}, ["objective.layers"]),
    ],
)
def test_what_would_fail_later_is_refused_before_anything_starts(options, fields, words):
    with pytest.raises(UserError) as caught:
        sweep_for(options, space(**fields))
    for word in words:
        assert word in str(caught.value)
    assert not Path(options.storage).exists()


def test_a_flag_that_no_trial_would_follow_is_refused(options):
    refused = replace(options, set_fields={"objective.decoder_mask_ratio": "0.6"})
    with pytest.raises(UserError, match=r"--set objective.decoder_mask_ratio=0.6: this sweep varies"):
        sweep_for(refused, space())
    kept = replace(options, set_fields={"objective.encoder_mask_ratio": "0.2"})
    assert sweep_for(kept, space()).recipe.objective.encoder_mask_ratio == 0.2


def test_the_corpus_of_a_space_is_read_unless_the_command_line_names_one(options, tmp_path, capsys):
    own = write_collection(tmp_path / "others")
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nrecipe: retromae\ncorpus: {own}\nparameters:\n  pretrain.steps: {{values: [1]}}\n")
    for arguments, read in ((["--dry-run"], own), (["--dry-run", "--corpus", options.corpus], options.corpus)):
        flags = parse(
            ["--storage", options.storage, "--tracking-uri", options.tracking_uri, *arguments], None, add_sweep_flags
        )
        sweep(resolve(flags), flags, file)
        assert f"corpus.name = {read}\n" in capsys.readouterr().out
