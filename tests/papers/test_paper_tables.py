"""The papers' tables: cells against means computed apart, LaTeX that is whole; several collections in one run."""

import re
from dataclasses import replace

import numpy as np
import pytest

from midmask.benchmark.results import Result, Results, SystemKey
from midmask.evaluation.groups import BEIR13, folders
from midmask_papers.claims import CLAIMS
from midmask_papers.layouts import NamedTable
from midmask_papers.matching import key_of
from midmask_papers.paper_tables import SHEETS, paper_tables
from midmask_papers.published import PAPERS, published
from tests.support.benchmark.synthetic import Noise, dense, drawn, results
from tests.support.benchmark.worlds import QUIET, on_nq

ONE = {"setting": "sigir23_1neg"}
SYSTEMS = {
    dense("none", **ONE): 0.3,
    dense("mlm", **ONE): 0.35,
    dense("retromae", **ONE): 0.45,
    SystemKey("retromae", "corpus", "splade", "sigir23_1neg"): 0.5,
}


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
    found = [
        *drawn(SYSTEMS, corpus="squad", split="dev", draw=5),
        *drawn(SYSTEMS, corpus="squad", split="test", noise=noise),
    ]
    return paper_tables("sigir23", Results(found), ["Backbone tiny."])


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
    for name in set(PAPERS) - {"rom"}:
        for sheet in SHEETS[name]:
            slots = list(sheet.slots())
            places = [(slot.row, slot.column) for slot in slots]
            assert len(set(places)) == len(places), f"{name} {sheet.name}: two numbers in one cell"
            assert all(slot.number is not None and slot.measure == slot.number.measure for slot in slots)
            assert len({(slot.column, slot.measure) for slot in slots}) == len({slot.column for slot in slots})
        shown = {slot.number for sheet in SHEETS[name] for slot in sheet.slots()}
        missing = {
            (number.paper, number.table)
            for number in published(name)
            if number not in shown and number.table not in ("text", "BEIR")
        }
        assert missing <= left_out


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
    assert "<sup>\\*\\*</sup> (0.3462)" in cells["decoding: basic, 0.5", "MRR@10"]
    assert "sup" not in cells["decoding: enhanced", "MRR@10"]
    assert "\\textsuperscript{**}" in table.files()["tex"]


def all_tables() -> list[NamedTable]:
    keys = dict.fromkeys(
        replace(slot.key, setting=slot.key.setting or "dpr")
        for name in SHEETS
        for sheet in SHEETS[name]
        for slot in sheet.slots()
        if slot.key.system and slot.key.representation
    )
    found: list[Result] = drawn(dict.fromkeys(keys, 0.4), queries=3, seeds=1)
    return [
        table for name in SHEETS for table in paper_tables(name, Results(found), ["50% & more_or_less {a} ~ #1 $x^2$"])
    ]


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


def further(found: list[Result]) -> list[Result]:
    return [replace(one, further=True) for one in found]


def nq(values: dict[SystemKey, float], measure: str = "Success@10") -> list[Result]:
    """NQ as a further collection, fine-tuned on."""
    return further(drawn(values, noise=QUIET, queries=25, corpus="nq", split="test", measure=measure))


def searched(values: dict[SystemKey, float], corpus: str) -> list[Result]:
    return drawn(values, noise=QUIET, queries=25, corpus=corpus, split="test", measure="nDCG@10")


@pytest.fixture(scope="module")
def one_run() -> Results:
    """As the papers print them; on NQ, 0.7 and the printed gain."""
    sets = ["beir-nq" if name == "nq" else name for name in folders("beir18")]
    beir = [one for name in sets for one in searched(BEIR, name)]
    main = {key_of(one): one.value for one in published("retromae", "main") if one.measure == "RR@10"}
    return results(drawn(main, noise=QUIET, queries=25), beir, nq(on_nq()))


def test_claims_on_both_collections_are_decided(one_run: Results) -> None:
    found = {name: CLAIMS[name].check(one_run) for name in ("retromae.main", "retromae.in_domain", "retromae.nq")}
    assert {name: ruling.outcome for name, ruling in found.items()} == dict.fromkeys(found, "holds")
    assert "on msmarco dev" in found["retromae.main"].sentence and "on nq test" in found["retromae.nq"].sentence


def test_an_average_over_beir_has_the_set_that_was_only_searched(one_run: Results) -> None:
    """Also where the collection of the same name that is fine-tuned on has the measure."""
    better = nq(dict.fromkeys(BEIR, 0.99), "nDCG@10")
    for found in (one_run, results(list(one_run), better)):
        (beir,) = (table for table in paper_tables("retromae", found) if table.name == "retromae.beir")
        cells = {row: cell.mean for (row, _), cell in beir.table.cells.items()}
        assert cells == pytest.approx({"BERT": 0.37, "RetroMAE": 0.45}, abs=2e-3)


def test_what_is_fine_tuned_on_is_not_out_of_domain() -> None:
    """RetroMAE is better on SciFact, zero-shot, and much worse where all are fine-tuned."""
    keys = {replace(key, system=name): 0.4 for key in BEIR for name in ("seed", "condenser", "retromae")}
    keys = {key: value for key, value in {**keys, **dict.fromkeys(BEIR, 0.4)}.items() if key.collection != "none"}
    values = {dense("none", setting="dpr"): 0.3, **keys, dense("retromae", collection="wiki", setting="dpr"): 0.5}
    turned = {key: 1 - value for key, value in values.items()}
    found = results(drawn(values, noise=QUIET, queries=25), searched(values, "scifact"), nq(turned, "nDCG@10"))
    ruling = CLAIMS["retromae.beir"].check(found)
    assert ruling.outcome == "holds" and "nq" not in ruling.sentence
