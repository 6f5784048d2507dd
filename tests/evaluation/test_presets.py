"""Sets of measures and of BEIR's collections by name."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.evaluation import groups, measures, presets
from midmask.evaluation.retriever import EvaluateConfig
from tests.support.corpora.layouts import write_arguana


def test_every_preset_is_what_ir_measures_prints() -> None:
    for name, wanted in presets.PRESETS.items():
        assert [str(measure) for measure in measures.parse(wanted)] == list(wanted), name


def test_presets_and_measures_stand_side_by_side_each_once() -> None:
    found = presets.expand(["P@5", "beir", "nDCG@10", "sigir23"])
    assert found == ("P@5", "nDCG@10", "R@100", "RR@10", "R@1000")
    assert EvaluateConfig(measures=("beir", "AP")).measures == ("nDCG@10", "R@100", "AP")
    with pytest.raises(UserError, match=r"unknown measure 'sigir24'.*sigir23"):
        presets.expand(["sigir24"])
    with pytest.raises(UserError, match="named twice"):
        presets.expand(["P@5", "P@5"])


@given(st.lists(st.sampled_from([*presets.PRESETS, "P@5", "R@1", "nDCG@20"]), unique=True))
def test_expanding_twice_changes_nothing(names: list[str]) -> None:
    once = presets.expand(names)
    assert presets.expand(once) == once and len(set(once)) == len(once)


def test_the_groups_have_as_many_sets_as_their_names_say() -> None:
    assert [len(groups.GROUPS[name]) for name in ("beir13", "beir14", "beir18")] == [13, 14, 18]
    assert set(groups.BEIR14) - set(groups.BEIR13) == {"cqadupstack"}
    assert [len(set(groups.folders(name))) for name in ("beir13", "beir14", "beir18")] == [13, 13 + 12, 17 + 12]


def test_an_average_counts_cqadupstack_once() -> None:
    """CoT-MoTE's and DupMAE's printed rows (methods.md 14.4, 14.2), forums all at CQADupStack's value."""
    cotmote = [75.2, 33.1, 57.3, 66.8, 35.3, 50.2, 29.0, 75.4, 42.0, 16.7, 74.1, 24.8, 71.0]
    values = dict(zip(groups.BEIR13, cotmote, strict=True)) | dict.fromkeys(groups.FORUMS, 34.8)
    assert groups.group_average("beir14", values) == pytest.approx(48.98, abs=0.005)
    draw = np.random.default_rng(0).random(12)
    values |= dict(zip(groups.FORUMS, 100 * draw, strict=True))
    assert groups.group_average("beir14", values) == pytest.approx((sum(cotmote) + 100 * draw.mean()) / 14)
    assert groups.group_average("beir13", values) == pytest.approx(sum(cotmote) / 13)
    with pytest.raises(UserError, match="beir18: no value for bioasq, signal1m, trec-news, robust04"):
        groups.group_average("beir18", values)


def test_all_that_is_missing_is_named_with_the_layout(tmp_path: Path) -> None:
    for folder in groups.folders("beir14"):
        if folder != "fiqa":
            write_arguana(tmp_path / folder, packed=len(folder) % 2 == 0)
    (tmp_path / "cqadupstack/gis/qrels/test.tsv").unlink(missing_ok=True)
    (tmp_path / "cqadupstack/gis/qrels/test.tsv.gz").unlink(missing_ok=True)
    with pytest.raises(UserError) as error:
        groups.group_corpora("beir14", str(tmp_path))
    assert "fiqa: the folder; cqadupstack/gis: qrels/test.tsv" in str(error.value)
    write_arguana(tmp_path / "fiqa")
    found = groups.group_corpora("beir13", str(tmp_path))
    assert found["scifact"].name == f"beir:{tmp_path}/scifact" and found["scifact"].splits == "official"
    with pytest.raises(UserError, match=r"unknown group of BEIR sets 'beir12'.*Known: beir13, beir14, beir18"):
        groups.group_corpora("beir12", str(tmp_path))
