"""What a command line asks of a benchmark: the preset, narrowed and widened by flags."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.benchmark.design import Benchmark
from midmask.benchmark.job import preset_with_flags
from midmask.benchmark.layout import lay_out
from midmask.errors import UserError
from tests.support.benchmark.tiny import write_collection

JOB = Path(__file__).resolve().parents[2] / "jobs" / "benchmark_middle_training.py"
FLAGS = ("preset", "systems", "seeds", "representations", "settings", "zero_shot", "collections", "out")


@pytest.fixture
def ask(tmp_path: Path):
    corpus, other = (write_collection(tmp_path / name) for name in ("tiny", "other"))

    def found(preset: str, *more: str, **flags: str) -> Benchmark:
        options = resolve(parse(["--corpus", corpus, "--pretrain-on", other, *more], None), JOB)
        return preset_with_flags(
            replace(options, home=tmp_path), Namespace(**{**dict.fromkeys(FLAGS), "preset": preset, **flags})
        )

    return found


def test_collections_of_the_preset_are_chosen_by_name(ask) -> None:
    assert list(ask("collections").collections) == ["other", "tiny", "both"]
    one = ask("collections", collections="tiny")
    assert list(one.collections) == ["tiny"] and not one.only
    two = ask("collections", collections="both,tiny")
    assert set(two.collections) == {"both", "tiny"} and set(two.only) == {"both"}
    with pytest.raises(UserError, match="--collections wiki: the preset has other, tiny, both"):
        ask("collections", collections="wiki")


def test_settings_and_systems_are_chosen_by_name(ask) -> None:
    one = ask("retromae", settings="dpr", systems="none,retromae[decoding=basic,decoder_layers=2]", seeds="3,4")
    assert list(one.settings) == ["dpr"] and one.seeds == (3, 4)
    assert one.systems == ("none", "retromae[decoding=basic,decoder_layers=2]", "bm25")
    with pytest.raises(UserError, match="--settings anse: the preset has dpr, ance"):
        ask("retromae", settings="anse")


def test_a_system_that_the_preset_does_not_have_is_run_under_all_of_its_conditions(ask) -> None:
    one = ask(
        "pretrained", systems="retromae,simcse,retromae[merge=0.5]", settings="no labels", representations="dense"
    )
    layout = lay_out(one)
    assert [cell.key.system for cell in layout.cells] == ["retromae", "retromae[merge=0.5]", "bm25"]
    assert [left.key.system for left in layout.left_out] == ["simcse"], "the preset runs it with labels alone"


def test_what_is_set_by_hand_outdoes_the_preset_and_stands_in_the_captions(ask) -> None:
    one = ask("rom", "--set", "stages.*.train.steps=7", "--set", "pretrain.steps=5")
    for cell in lay_out(one).cells:
        assert [stage.train.steps for stage in cell.recipe.stages] == [7] * len(cell.recipe.stages)
    assert one.notes[-1] == "But by --set: stages.*.train.steps = 7, pretrain.steps = 5."
    assert not any("--set" in note for note in ask("rom").notes)
