"""The papers' numbers and tables: every number has a cell, cells against means computed apart, LaTeX that is whole."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from midmask.app.flags import add_zero_shot_flag, parse
from midmask.benchmark.presets import PRESETS
from midmask.benchmark.report import NamedTable
from midmask.benchmark.results import Result, Results, SystemKey, read_results
from midmask.corpora.tripclick import QRELS
from midmask.evaluation import measures
from midmask.evaluation.groups import BEIR13, BEIR18, GROUPS, folders
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.place import Place
from midmask_papers.claims import CLAIMS
from midmask_papers.published import PAPERS, Published, published
from midmask_papers.tables import SHEETS, paper_tables
from tests.support.benchmark.synthetic import QUIET, Noise, dense, drawn, results
from tests.tools.coverage import RUNS, Coverage, PresetRun, measure_coverage, report

LEVELS = {"none": 0.3, "mlm": 0.35, "retromae": 0.45}
SYSTEMS = {dense(name, setting="sigir23_1neg"): level for name, level in LEVELS.items()}
SYSTEMS[SystemKey("retromae", "corpus", "splade", "sigir23_1neg")] = 0.5


def named(tables: list[NamedTable], name: str) -> NamedTable:
    (found,) = (one for one in tables if one.name == name)
    return found


def grid(markdown: str) -> dict[tuple[str, str], str]:
    """(row, column) -> the text of its cell."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {(row[0], column): cell for row in rows for column, cell in zip(head[1:], row[1:], strict=True)}


@pytest.fixture(scope="module")
def sigir23() -> list[NamedTable]:
    noise = Noise(query=0.1, system=0.02)
    dev, test = (
        drawn(SYSTEMS, corpus="squad", split="dev", draw=5),
        drawn(SYSTEMS, corpus="squad", split="test", noise=noise),
    )
    return paper_tables("sigir23", results(dev, test), ["Backbone tiny."])


def test_cells_are_the_means_over_seeds_and_queries_of_test(sigir23):
    found = drawn(SYSTEMS, corpus="squad", split="test", noise=Noise(query=0.1, system=0.02))
    cells = grid(named(sigir23, "sigir23.table1").markdown())
    rows = {"none": "a BERT", "mlm": "b BERT MS", "retromae": "f RetroMAE MS"}
    for key in SYSTEMS:
        mean = np.mean([one.per_query["value"].to_numpy() for one in found if one.key == key])
        view = {"dense": "dense", "splade": "SPLADE"}[key.representation]
        number = re.match(r"[*]*(\d+\.\d)", cells[rows[key.system], f"{view} MRR@10"])
        assert number[1] == f"{100 * mean:.1f}"
    assert cells["g LexMAE MS", "dense MRR@10"] == "— (34.6)"
    assert cells["e RetroMAE", "dense MRR@10"] == "— (34.2)", "on Wikipedia, which is not RetroMAE on MS MARCO"


def test_only_tables_with_something_measured_are_made(sigir23):
    assert [one.name for one in sigir23] == ["sigir23.table1"]
    text = sigir23[0].markdown()
    for said in ("backbone: BERT-base", "corpus: squad", "seeds: 0, 1, 2", "Backbone tiny.", "Bonferroni"):
        assert said in text
    assert paper_tables("demo", results(drawn(SYSTEMS))) == paper_tables("sigir23", Results([])) == []
    key = SystemKey("none", "none", "splade", "sigir23_32neg_distil_50k")
    doubtful = named(paper_tables("sigir23", results(drawn({key: 0.3}))), "sigir23.table6").markdown()
    assert "(33.2?)" in doubtful, "a doubtful number is marked"


def test_every_published_number_of_a_layout_stands_in_its_row_and_column():
    """All numbers of a paper's tables, but those named here, once any cell of the table was measured."""
    left_out = {("dupmae", "2"), ("cotmote", "1")}  # averages of systems without sets; divergences
    for name in SHEETS:
        for sheet in SHEETS[name]:
            slots = list(sheet.slots())
            places = [(slot.row, slot.column) for slot in slots]
            assert len(set(places)) == len(places), f"{name} {sheet.name}: two numbers in one cell"
            assert len({(slot.column, slot.number.measure) for slot in slots}) == len({slot.column for slot in slots})
        shown = {slot.number for sheet in SHEETS[name] for slot in sheet.slots()}
        tabled = [number for number in published(name) if number.table not in ("text", "BEIR")]
        assert {(number.paper, number.table) for number in tabled if number not in shown} <= left_out


def test_beirs_average_needs_all_its_sets():
    key = dense("none", setting="sigir23_1neg_distil")
    parts = [
        drawn({key: 0.3 + n / 100}, corpus=corpus, split="test", measure="nDCG@10", queries=5, seeds=1)
        for n, corpus in enumerate(BEIR13)
    ]
    tables = paper_tables("sigir23", results(*parts))
    wanted = np.mean([part[0].measures["nDCG@10"] for part in parts])
    cells = grid(named(tables, "sigir23.table3").markdown())
    assert cells["a BERT", "dense nDCG@10 beir13"] == f"**{100 * wanted:.1f}** (44.0)"
    assert paper_tables("sigir23", results(*parts[1:])) == []


def test_stars_are_against_the_papers_reference():
    systems = {dense("retromae", setting="dpr"): 0.3, dense("retromae[decoding=basic]", setting="dpr"): 0.4}
    quiet = results(drawn(systems, noise=Noise().scaled(0.01)))
    table = named(paper_tables("retromae", quiet), "retromae.table6")
    cells = grid(table.markdown())
    assert "<sup>\\*</sup> (0.3462)" in cells["decoding: basic, 0.5", "MRR@10"]
    assert "sup" not in cells["decoding: enhanced", "MRR@10"]
    assert "\\textsuperscript{*}" in table.files()["tex"]


def all_tables() -> list[NamedTable]:
    every = [slot.key for name in SHEETS for sheet in SHEETS[name] for slot in sheet.slots()]
    whole = [key for key in every if key.system and key.representation]
    keys = dict.fromkeys(replace(key, setting=key.setting or "dpr") for key in whole)
    found: list[Result] = drawn(dict.fromkeys(keys, 0.4), queries=3, seeds=1)
    hostile = ["50% & more_or_less {a} ~ #1 $x^2$"]
    return [table for name in SHEETS for table in paper_tables(name, Results(found), hostile)]


def test_latex_of_every_table_is_whole():
    """Braces balance, every row has as many cells as the head, nothing special is left unescaped."""
    tables = all_tables()
    assert {one.name.split(".")[0] for one in tables} == set(SHEETS)
    for table in tables:
        text = table.files()["tex"]
        bare = re.sub(r"\\[&%$#_{}\\]|\\text(backslash|asciitilde|asciicircum)\{\}", "", text)
        assert bare.count("{") == bare.count("}") and not re.search(r"[#$%_~^]", bare), table.name
        depth = 0
        for letter in bare:
            depth += (letter == "{") - (letter == "}")
            assert depth >= 0
        rows = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r" \\")]
        counts = {len(re.split(r"(?<!\\)&", row)) for row in rows}
        assert len(counts) == 1 and f"{{l{'r' * (counts.pop() - 1)}}}" in text


BEIR = {dense("none", setting="dpr"): 0.37, dense("retromae", collection="wiki", setting="dpr"): 0.45}


def searched(values: dict[SystemKey, float], corpus: str) -> list[Result]:
    return drawn(values, noise=QUIET, queries=25, corpus=corpus, split="test", measure="nDCG@10")


def test_an_average_over_beir_has_the_set_that_has_the_name_of_the_corpus() -> None:
    sets = ["beir-nq" if name == "nq" else name for name in folders("beir18")]
    found = results(searched(dict.fromkeys(BEIR, 0.99), "nq"), *(searched(BEIR, name) for name in sets))
    (beir,) = (table for table in paper_tables("retromae", found) if table.name == "retromae.beir")
    cells = {row: cell.mean for (row, _), cell in beir.table.cells.items()}
    assert cells == pytest.approx({"BERT": 0.37, "RetroMAE": 0.45}, abs=2e-3)


def test_what_is_fine_tuned_on_is_not_out_of_domain() -> None:
    """RetroMAE is better on SciFact, zero-shot, and much worse where all are fine-tuned."""
    keys = {replace(key, system=name): 0.4 for key in BEIR for name in ("seed", "condenser", "retromae")}
    keys = {key: value for key, value in {**keys, **dict.fromkeys(BEIR, 0.4)}.items() if key.collection != "none"}
    values = {dense("none", setting="dpr"): 0.3, **keys, dense("retromae", collection="wiki", setting="dpr"): 0.5}
    turned = {key: 1 - value for key, value in values.items()}
    ruling = CLAIMS["retromae.beir"].decide(results(searched(turned, "nq"), searched(values, "scifact")))
    assert ruling.outcome == "holds" and "nq" not in ruling.sentence


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


@pytest.mark.parametrize(("field", "value"), [
    ("system", "bow"), ("system", "retromae[decoding=basic]"), ("collection", "books"),
    ("representation", "hybrid"), ("setting", "dpr"), ("corpus", "tripclick"), ("measure", "R@7"),
])  # fmt: skip
def test_a_number_under_conditions_that_no_preset_has_is_not_covered(field, value):
    number = one("dupmae", "1", "RetroMAE", "RR@10")
    assert is_covered(number) and not is_covered(replace(number, **{field: value}))
    untold = one("cotmote", "2", "SimLM", "RR@10")
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
        parser.add_argument("--preset")
        add_zero_shot_flag(parser)

    for run in (run for runs in RUNS.values() for run in runs):
        _, job, *words = run.command.split()
        flags = parse(words, None, add_flags)
        assert (PAGE.parents[2] / job).is_file() and run.preset in set(PRESETS)
        assert (flags.preset, flags.corpus, flags.scale) == (run.preset, run.corpus, "published")
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
    assert {re.sub(r"\[.*", "", n.system) for n in ALL} - {"", "bm25"} <= set(RECIPES)
    assert measures.parse(sorted({n.measure for n in ALL} - set(ANALYSES)))
    sets = {"msmarco", "trec-dl-2019", "trec-dl-2020", "tripclick", "nq", *BEIR18, *GROUPS, ""}
    assert {n.corpus for n in ALL} <= sets
    slices = {n.split for n in ALL if n.corpus == "tripclick"}
    assert slices == {"test.head-dctr", "test.head", "test.torso", "test.tail"}
    assert all(QRELS.fullmatch(f"qrels.raw.{split.split('.')[1].split('-')[0]}.test.txt") for split in slices)
    settings = {re.sub(r"_(50k|100k|stage\d)$", "", n.setting) for n in ALL} - {"", "none"}
    assert settings <= set(PROTOCOLS)


def test_dupmaes_sets_and_wins_agree():
    sets = [n for n in published("dupmae", "2") if n.condition == "zero-shot"]
    assert {n.corpus for n in sets} == set(BEIR18)
    values = {label: {n.corpus: n.value for n in sets if n.label == label} for label in ("RetroMAE", "DupMAE")}
    assert sum(values["DupMAE"][name] > values["RetroMAE"][name] for name in BEIR18) == 13
    assert sum(values["DupMAE"].values()) / 18 == pytest.approx(0.4767, abs=5e-5)
