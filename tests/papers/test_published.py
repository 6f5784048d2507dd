"""The papers' numbers: their shape, and, where methods.md is at hand, each of them against it."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from midmask.corpora.tripclick import QRELS
from midmask.errors import UserError
from midmask.evaluation.groups import BEIR18, GROUPS
from midmask.evaluation.measures import parse
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask_papers.published import PAPERS, Published, PublishedTable, paper, published

ANALYSES = ("KL", "JS", "stop share", "wins")

METHODS = Path(__file__).resolve().parents[3] / "shared" / "methods.md"
PARTS = {"DPR": "DPR-style, g", "ANC": "ANCE-style, g", "MS ": "ANCE-style, M", "+ d": "distilled"}
ALL = [number for name in PAPERS for number in published(name)]


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Number of a section of chapter 14 -> its text."""
    if not METHODS.is_file():
        pytest.skip(f"no {METHODS} to hold the numbers against")
    chapter = METHODS.read_text("utf-8").split("## 14. ")[1].split("## 15. ")[0]
    return {part.split()[0]: part for part in chapter.split("### ")[1:]}


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every line of a Markdown table."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")]


def measure(name: str) -> str:
    """A paper's word for a measure, as ir-measures writes it."""
    return {"MRR@10": "RR@10", "MRR@100": "RR@100", "R@1k": "R@1000", "DL19": "nDCG@10", "DL20": "nDCG@10"}.get(
        name, name
    )


def numbers(cell: str, *, percent: bool = False) -> list[float]:
    return [
        float(value) / (100 if percent else 1)
        for value in cell.replace(" (!)", "").split("/")
        if value.strip() not in "-"
    ]


def close(found: list[float], wanted: list[float]) -> bool:
    return len(found) == len(wanted) and all(math.isclose(a, b) for a, b in zip(found, wanted, strict=True))


def of(name: str, table: str, **fields: str) -> list[float]:
    return [
        number.value
        for number in published(name, table)
        if all(getattr(number, field) == value for field, value in fields.items())
    ]


def test_every_number_is_a_fraction_and_stands_once():
    assert all(0 < number.value < 1 for number in ALL)
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


def test_sources_that_contradict_each_other_are_noted():
    noted = {(n.paper, n.table, n.label, n.measure) for n in ALL if n.note}
    assert ("sigir23", "6", "BERT", "RR@10") in noted and ("sigir23", "4", "RetroMAE MS", "nDCG@10") in noted
    assert ("dupmae", "2", "DupMAE", "nDCG@10") in noted and ("retromae", "text", "RetroMAE", "RR@10") in noted
    assert all(
        paper(name).conditions.keys() == {"backbone", "collections", "titles", "steps", "seeds"} for name in PAPERS
    )


def test_sigir23_equals_methods(sections):
    order = [column["label"] for column in paper("sigir23").tables[0].columns]
    assert [n.table for n in published("sigir23")] == sorted(n.table for n in published("sigir23"))
    table, checked = "", 0
    for first, system, name, *values in (cells for cells in rows(sections["14.3"]) if len(cells) == 10):
        table = first or table
        if system not in ("dense", "SPLADE"):
            continue
        fields = {"representation": "dense" if system == "dense" else "splade"}
        fields |= {"corpus": "beir13"} if name.startswith("BEIR") else {"measure": measure(name)}
        fields |= {"corpus": {"DL19": "trec-dl-2019", "DL20": "trec-dl-2020"}[name]} if name.startswith("DL") else {}
        if size := re.search("100k|50k", table):
            fields["setting"] = f"sigir23_32neg_distil_{size[0]}"
        for label, value in zip(order, values, strict=True):
            assert close(of("sigir23", table[0], label=label, **fields), numbers(value, percent=True)), (table, name)
            checked += 1
    listed = re.search(r"Table 7, .*\): (.*)\.\n", sections["14.3"])[1].split("; ")
    for label, values in (one.rsplit(" ", 1) for one in listed):
        assert close(of("sigir23", "7", label=label), numbers(values, percent=True))
        checked += 4
    assert checked == len(published("sigir23"))


def test_retromae_equals_methods(sections):
    text = sections["14.1"]
    main, ablation = text.split("Table 6 ablations")
    checked, part = 0, ""
    for first, label, *values in list(rows(main))[2:]:
        part = PARTS.get(first[:3], part)
        found = [n.value for n in published("retromae", "main") if n.label == label and n.condition.startswith(part)]
        assert close(found, numbers("/".join(values))), (part, label)
        checked += len(found)
    beir = re.search(r"nDCG@10: (.*)\. NQ, DPR FT: \S+ = (\S+)\.\n", text)
    for label, value in (one.replace("**", "").split() for one in beir[1].split(", ")):
        assert of("retromae", "BEIR", label=label) == [float(value)]
    assert close(of("retromae", "NQ"), numbers(beir[2]))
    deltas = re.findall(r"\+(\d\.\d+) (?:MRR|R@10)", text)
    assert close(of("retromae", "text"), [float(value) / 100 for value in deltas])
    factor = ""
    for first, variant, values in list(rows(ablation))[2:]:
        factor = first or factor
        found = [n for n in published("retromae", "6") if n.condition == factor]
        if factor == "decoding":
            label = variant.removesuffix(" (default)")
            assert close([n.value for n in found if n.label == label], numbers(values))
        else:
            assert [n.label for n in found] == variant.split(" / ") and close([n.value for n in found], numbers(values))
    assert checked == len(published("retromae", "main"))


def test_dupmae_equals_methods(sections):
    tables = [list(rows(part))[2:] for part in re.split(r"Table [123][ ,(]", sections["14.2"])[1:3]]
    for label, *values in ([row[0], *row[2:]] for row in tables[0] if "AR2" not in row[0]):
        assert close(of("dupmae", "1", label=label), numbers("/".join(values))), label
    both = next(row for row in tables[0] if "AR2" in row[0])
    for label, place in (("AR2", 0), ("AR2+SimANS", 1)):
        assert close(
            of("dupmae", "1", label=label), [float(cell.split(" / ")[place]) for cell in both[2:] if cell != "-"]
        )
    for label, *values in tables[1]:
        assert close(of("dupmae", "3", label=label), numbers("/".join(values))), label
    sets = re.findall(r"\.\d{3}/\.\d{3}", sections["14.2"])
    per_set = [n for n in published("dupmae", "2") if n.condition == "zero-shot"]
    assert [n.value for n in per_set] == [value for pair in sets for value in numbers(pair)]
    averages = re.search(r"Averages printed: (.*) \(recomputed", sections["14.2"])[1].split(", ")
    for label, value in (one.split() for one in averages):
        assert [n.value for n in published("dupmae", "2") if n.label == label and n.corpus == "beir18"] == [
            float(value)
        ]
    wins = [int(count) / 18 for count in re.findall(r"on (\d+) of 18", sections["14.2"])]
    assert of("dupmae", "text") == pytest.approx(wins, abs=1e-4)


def test_dupmaes_sets_and_wins_agree():
    sets = [n for n in published("dupmae", "2") if n.condition == "zero-shot"]
    assert {n.corpus for n in sets} == set(BEIR18)
    values = {label: {n.corpus: n.value for n in sets if n.label == label} for label in ("RetroMAE", "DupMAE")}
    assert sum(values["DupMAE"][name] > values["RetroMAE"][name] for name in BEIR18) == 13
    assert sum(values["DupMAE"].values()) / 18 == pytest.approx(0.4767, abs=5e-5)


def test_cotmote_and_rom_equal_methods(sections):
    text = sections["14.4"]
    for one in re.search(r"non-distilled: (.*)\.\n", text)[1].replace("**", "").split("; "):
        label, values = one.rsplit(" ", 1)
        assert close(of("cotmote", "2", label=label), numbers(values, percent=True)), label
    grid = [cells for cells in rows(text) if len(cells) == 4][2:]
    for label, *views in grid:
        assert close(of("cotmote", "3-5", label=label), numbers("/".join(views), percent=True)), label
    pilot = re.search(r"Table 1 .*Siamese MRR (\S+), KL (\S+), JS (\S+); fully separate (\S+), (\S+), (\S+)\.\n", text)
    scale = (100, 1, 1, 100, 1, 1)
    assert close(of("cotmote", "1"), [float(value) / by for value, by in zip(pilot.groups(), scale, strict=True)])
    averages = re.search(r"BEIR-14 averages: (.*) \(recomputed", text)[1].split(", ")
    assert close(of("cotmote", "BEIR", corpus="beir14"), [float(one.rsplit(" ", 1)[1]) / 100 for one in averages])
    per_set = re.search(r"CoT-MoTE per set: (.*)\.", text)[1].split(", ")
    found = [n.value for n in published("cotmote", "BEIR") if n.corpus != "beir14"]
    assert close(found, [float(one.rsplit(" ", 1)[1]) / 100 for one in per_set])
    assert sum(found) / len(found) == pytest.approx(0.4898, abs=5e-5)
    assert of("rom", "text") == [int(re.search(r"~(\d+)%", sections["14.5"])[1]) / 100]


def test_a_number_tells_its_recipe():
    one = Published(paper="p", table="1", label="l", measure="RR@10", value=0.1, source="s", system="dupmae[decode=ot]")
    assert one.recipe == "dupmae"
