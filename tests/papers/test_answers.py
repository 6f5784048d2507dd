"""The page of answers: every claim once, a point for each experiment, as records give it; other pages agree with it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.benchmark.results import Result, Results
from midmask.core.words import MISSING
from midmask.errors import UserError
from midmask.experiment.costs import Costs
from midmask.store.place import Place
from midmask_papers.answers import OUTCOME_NAMES, Experiment, page, read_experiments, verdicts
from midmask_papers.claims import CLAIMS
from tests.support.benchmark.synthetic import dense, drawn, results

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TRAINED = {dense("none"): 0.3, dense("mlm"): 0.4, dense("retromae"): 0.2}


@pytest.fixture(scope="module")
def recorded() -> list[Experiment]:
    return read_experiments(DOCS / "results" / "records")


def points(text: str) -> dict[str, list[str]]:
    """Claim -> its cells, from the tables of the page."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {found[1]: row[1:] for row in rows if (found := re.search(r"\((\w+(?:\.\w+)?)\)$", row[0].strip()))}


def with_tokens(found: list[Result], tokens: int) -> list[Result]:
    """The results with what their middle training read."""
    read = {key: 0 if key.system == "none" else tokens for key in dict.fromkeys(one.key for one in found)}
    return [replace(one, costs=Costs(0.0, 0.0, 0.0, read[one.key], 0, None, None)) for one in found]


def write(folder: Path, name: str, found: list[Result]) -> None:
    """Records as a benchmark leaves them, a file for each system."""
    (folder / name).mkdir(parents=True)
    for number, key in enumerate(dict.fromkeys(one.key for one in found)):
        about = {"identity": f"{name}{number}", "fingerprint": "f", "precision": "fp32", "processor": "p"}
        own = Results(one for one in found if one.key == key)
        own.write(Place(str(folder / name / f"{number}.parquet")), about)


def state(folder: Path, *lines: str) -> None:
    (folder / "runs.yaml").write_text("\n".join(f"- {{{line}, source: a.md}}" for line in lines), "utf-8")


def test_every_claim_has_one_row_and_a_point_where_it_was_measured():
    short, long = (results(drawn(levels, draw=1)) for levels in (TRAINED, {**TRAINED, dense("mlm"): 0.2}))
    text = page([Experiment("a corpus", "nothing", 400_000, short), Experiment("a corpus", "nothing", 3_000_000, long)])
    rows = points(text)
    assert sorted(rows) == sorted(CLAIMS)
    first, second = (dict((c.name, r) for c, r in verdicts(one))["sigir23.a_mlm"] for one in (short, long))
    assert (first.outcome, second.outcome) == ("holds", "does not hold")
    representation, *cells = (cell.strip() for cell in rows["sigir23.a_mlm"])
    assert representation == "dense" and len(cells) == 2
    for cell, ruling in zip(cells, (first, second), strict=True):
        assert cell.startswith(f"{ruling.outcome} {100 * ruling.estimate:+.2f} [{100 * ruling.low:+.2f}, ")
        assert cell.endswith("published +1.50")
    assert re.search(r"- 1 hold at one point and not at another: sigir23\.a_mlm\n", text)
    assert "0.4 M tokens" in text and "3 M tokens" in text
    assert [cell.strip() for cell in rows["sigir23.e_trec"]] == ["—"] * 3


def test_records_of_one_collection_start_and_length_are_one_experiment(tmp_path):
    """Each folder alone has half of a claim; together they decide it, with the measures of both."""
    found = with_tokens(drawn(TRAINED), 1_534_000)
    more = with_tokens(drawn({**TRAINED, dense("rom"): 0.5}), 1_535_500)
    write(tmp_path, "one", [one for one in found if one.key.system != "mlm"])
    write(tmp_path, "two", more)
    write(tmp_path, "again", with_tokens(drawn(TRAINED, measure="nDCG@10"), 1_534_000))
    write(tmp_path, "long", with_tokens(drawn(TRAINED, draw=5), 3_000_000))
    about = "collection: c, start: s"
    state(tmp_path, *(f"records: {name}, {about}" for name in ("one", "two", "again", "long")))
    joined, long = read_experiments(tmp_path)
    assert (joined.tokens, long.tokens) == (1_500_000, 3_000_000)
    assert set(joined.results.names("system")) == {"none", "mlm", "retromae", "rom"}
    assert len(joined.results) == len(more)
    (mlm, *_) = joined.results.where(system="mlm")
    assert {*mlm.measures} == {*mlm.per_query["measure"].to_pylist()} == {"RR@10", "nDCG@10"}
    with pytest.raises(UserError, match=r"two: other values of .*none"):
        write(tmp_path, "other", with_tokens(drawn({dense("none"): 0.31, dense("mlm"): 0.4}), 1_534_000))
        state(tmp_path, *(f"records: {name}, {about}" for name in ("other", "two", "again", "one", "long")))
        read_experiments(tmp_path)


def test_records_that_no_line_is_of_and_lengths_that_do_not_compare_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no runs\.yaml; give the folder of all records"):
        read_experiments(tmp_path)
    lengths = {"mlm": 400_000, "retromae": 3_000_000}
    found = [one for name, read in lengths.items() for one in with_tokens(drawn({dense(name): 0.3}), read)]
    write(tmp_path, "mixed", found)
    for lines, said in (
        (["records: other, collection: c, start: s"], "mixed has records and no line"),
        (["records: mixed, collection: c"], "start"),
        (["records: mixed, collection: c, start: s"], "400,000 to 3,000,000 tokens"),
    ):
        state(tmp_path, *lines)
        with pytest.raises(UserError, match=said):
            read_experiments(tmp_path)


def test_the_page_is_what_the_records_give(recorded):
    assert (DOCS / "results" / "papers.md").read_text("utf-8") == page(recorded), "write the command's output into it"
    titles = [one.title for one in recorded]
    assert len(titles) == len(set(titles)) and all(one.tokens > 100_000 for one in recorded)
    costs = [one.costs for experiment in recorded for one in experiment.results]
    assert costs and sum(cost.gpu_hours for cost in costs) == 0, "the page says that no GPU took part"


def test_contrasts_with_a_collapsed_condition_are_not_decided():
    """In the page's table, which is what the records give."""
    rows = points((DOCS / "results" / "papers.md").read_text("utf-8"))
    collapsed = ("sigir23.b_gaps_shrink", "sigir23.g_teachers", "retromae.distilled")
    for name in (*collapsed, "cotmote.1_divergences", "cotmote.4_lowest"):
        assert {outcome(cell) for cell in rows[name][1:]} - {MISSING} == {"cannot be told"}, name


def outcome(cell: str) -> str:
    """The verdict at the beginning of a cell."""
    return next((said for said in OUTCOME_NAMES.values() if cell.strip().startswith(said)), cell.strip())


SPOKEN = {"does not hold": "does not hold", "holds": "holds", "held": "holds"}
SPOKEN |= {"not decidable": "cannot be told", "cannot be told": "cannot be told"}
"""Words for a verdict on any page -> the table's."""


def quoted(text: str) -> Iterator[tuple[str, str]]:
    """(claim, verdict) of every line of a page that has the name or the text of a claim and a word for a verdict."""
    spoken = re.compile(rf"\b({'|'.join(SPOKEN)})\b", re.I)
    for line in text.splitlines():
        names = [name for name, claim in CLAIMS.items() if re.search(rf"\b{re.escape(name)}\b", line)]
        names += [name for name, claim in CLAIMS.items() if claim.text in line]
        yield from ((name, SPOKEN[said.lower()]) for name in names for said in spoken.findall(line))


def test_no_page_says_of_a_claim_what_the_table_does_not():
    rows = points((DOCS / "results" / "papers.md").read_text("utf-8"))
    decided = {name: {outcome(cell) for cell in cells[1:]} for name, cells in rows.items()}
    pages = [path for path in (*DOCS.rglob("*.md"), ROOT / "README.md") if path.name != "papers.md"]
    said = [(path.name, *each) for path in pages for each in quoted(path.read_text("utf-8"))]
    assert not [each for each in said if each[2] not in decided[each[1]]]
    line = f"- **sigir23.collection**: {CLAIMS['sigir23.collection'].text} *Holds.* +2.14"
    assert set(quoted(line)) == {("sigir23.collection", "holds")} and "holds" not in decided["sigir23.collection"]
