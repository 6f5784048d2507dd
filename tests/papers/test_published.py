"""The papers' numbers: their shape, and what they name."""

import re
from collections import Counter

import pytest

from midmask.corpora.tripclick import QRELS
from midmask.errors import UserError
from midmask.evaluation.groups import BEIR18, GROUPS
from midmask.evaluation.measures import parse
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask_papers.published import PAPERS, PublishedTable, published

ANALYSES = ("KL", "JS", "stop share", "wins")

ALL = [number for name in PAPERS for number in published(name)]


def test_every_number_is_a_fraction_and_stands_once():
    assert all(0 < number.value < 1 for number in ALL)
    noted = {(n.paper, n.table, n.label, n.measure) for n in ALL if n.note}
    assert {("sigir23", "6", "BERT", "RR@10"), ("dupmae", "2", "DupMAE", "nDCG@10")} < noted, "sources that disagree"
    where = Counter(
        (n.paper, n.table, n.label, n.condition, n.setting, n.representation, n.corpus, n.split, n.measure, n.against)
        for n in ALL
    )
    assert [key for key, count in where.items() if count > 1] == []


def test_systems_measures_and_corpora_are_known():
    assert {n.recipe for n in ALL} - {"", "bm25"} <= set(RECIPES)
    assert parse(sorted({n.measure for n in ALL} - set(ANALYSES)))
    sets = {"msmarco", "trec-dl-2019", "trec-dl-2020", "tripclick", "nq", *BEIR18, *GROUPS, ""}
    assert {n.corpus for n in ALL} <= sets
    slices = {n.split for n in ALL if n.corpus == "tripclick"}
    assert slices == {"test.head-dctr", "test.head", "test.torso", "test.tail"}
    assert all(QRELS.fullmatch(f"qrels.raw.{split.split('.')[1].split('-')[0]}.test.txt") for split in slices)
    settings = {re.sub(r"_(50k|100k|stage\d)$", "", n.setting) for n in ALL} - {"", "none"}
    assert settings <= set(PROTOCOLS)


def test_a_variant_names_fields_of_its_recipe():
    for number in ALL:
        for change in re.findall(r"(\w+)=", number.system):
            config = RECIPES[number.recipe]()
            parts = (config.objective, config.backbone, config.representation)
            assert any(change in type(part).model_fields for part in parts), number.system


def test_unknown_papers_and_tables_are_told_with_what_is_there():
    with pytest.raises(UserError, match=r"paper 'dupmea'; did you mean 'dupmae'\? Known: cotmote, dupmae"):
        published("dupmea")
    with pytest.raises(UserError, match=r"table of sigir23 '8'. Known: 1, 2, 3, 4, 5, 6, 7"):
        published("sigir23", "8")


def test_a_grid_with_a_row_too_short_is_refused():
    with pytest.raises(ValueError, match="table 9: 1 values for 2 columns"):
        PublishedTable.model_validate(
            {"table": "9", "line": "", "columns": [{}, {}], "rows": [{"label": "a", "values": [0.1]}]}
        )


def test_dupmaes_sets_and_wins_agree():
    sets = [n for n in published("dupmae", "2") if n.condition == "zero-shot"]
    assert {n.corpus for n in sets} == set(BEIR18)
    values = {label: {n.corpus: n.value for n in sets if n.label == label} for label in ("RetroMAE", "DupMAE")}
    assert sum(values["DupMAE"][name] > values["RetroMAE"][name] for name in BEIR18) == 13
    assert sum(values["DupMAE"].values()) / 18 == pytest.approx(0.4767, abs=5e-5)
