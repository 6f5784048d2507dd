"""The papers' numbers: their shape and what they name; every one of an implemented system has a cell."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.app.flags import add_zero_shot_flag, parse
from midmask.artifact import Place
from midmask.benchmark.presets import PRESETS
from midmask.benchmark.results import read_results
from midmask.corpora.tripclick import QRELS
from midmask.evaluation import measures
from midmask.evaluation.groups import BEIR18, GROUPS
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask_papers.coverage import RUNS, Coverage, PresetRun, measure_coverage, report
from midmask_papers.published import PAPERS, Published, PublishedTable, published

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "coverage.md"


def one(paper: str, table: str, label: str, measure: str) -> Published:
    return next(number for number in published(paper, table) if (number.label, number.measure) == (label, measure))


def is_covered(number: Published) -> bool:
    return any(run.covers(number) for run in RUNS[number.paper])


def test_every_number_of_an_implemented_system_has_a_cell():
    found = measure_coverage()
    assert {name: len(own) for name, own in found.items()} == {name: len(published(name)) for name in PAPERS}
    assert not [one.number for own in found.values() for one in own if one.implemented and not one.command]
    assert not [one.number for own in found.values() for one in own if not one.implemented and one.command]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("system", "bow"),
        ("system", "retromae[decoding=basic]"),
        ("collection", "books"),
        ("representation", "hybrid"),
        ("setting", "dpr"),
        ("corpus", "tripclick"),
        ("measure", "R@7"),
    ],
)
def test_a_number_under_conditions_that_no_preset_has_is_not_covered(field, value):
    number = one("dupmae", "1", "RetroMAE", "RR@10")
    assert is_covered(number) and not is_covered(replace(number, **{field: value}))
    mapped, untold = one("cotmote", "1", "Siamese", "KL"), one("cotmote", "2", "SimLM", "RR@10")
    assert is_covered(mapped) and not is_covered(replace(mapped, system="cotmote_switched"))
    assert untold.setting == "" and is_covered(untold), "what a paper does not tell may be anything"


def test_table_7_reads_each_collection_under_its_name():
    """Middle training on MS MARCO, on Wikipedia, and on TripClick itself."""
    (run,) = (run for run in RUNS["sigir23"] if run.corpus.startswith("tripclick"))
    read = {(key.system, key.collection) for key in run.keys}
    assert ("retromae", "wiki") in read and ("lexmae", "msmarco") in read and ("mlm[fresh=true]", "corpus") in read
    assert ("mlm", "wiki") not in read and ("mlm", "corpus") not in read
    alone = {(key.system, key.collection) for key in PresetRun("sigir23", "tripclick:/data/tripclick", ()).keys}
    assert ("mlm", "corpus") in alone and not {name for _, name in alone} & {"msmarco", "wiki"}


def test_a_command_says_what_the_run_is_made_of():
    def add_flags(parser):
        parser.set_defaults(several_corpora=True)
        parser.add_argument("--preset")
        add_zero_shot_flag(parser)

    for run in (run for runs in RUNS.values() for run in runs):
        _, job, *words = run.command.split()
        flags = parse(words, None, add_flags)
        assert (PAGE.parents[2] / job).is_file() and run.preset in set(PRESETS)
        assert (flags.preset, flags.corpus, flags.scale) == (run.preset, run.corpus, "published")
        assert flags.further_corpora == run.further
        assert (tuple(flags.pretrain_on), tuple(flags.zero_shot)) == (run.pretrain_on, run.zero_shot)


def test_the_page_is_todays():
    title, text = PAGE.read_text("utf-8").split("\n\n", 1)
    assert title.startswith("# ") and text == report(measure_coverage()), "write `make coverage` into the page"
    number = replace(one("dupmae", "1", "RetroMAE", "RR@10"), table="9")
    told = report({"dupmae": [Coverage(number, True, ""), Coverage(number, True, "a command")]})
    assert "50.0%" in told and "dupmae, table 9: RetroMAE, RR@10 on msmarco" in told, "what lacks a cell is named"
    found = [one for file in (PAGE.parent / "records").glob("*/*.parquet") for one in read_results(Place(str(file)))[0]]
    printed = {number.corpus for name in PAPERS for number in published(name)} - {""}
    assert {one.corpus for one in found}.isdisjoint(printed), "it says that nothing of it was run"


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
    assert measures.parse(sorted({n.measure for n in ALL} - set(ANALYSES)))
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
