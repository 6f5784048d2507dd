"""A verdict as Markdown: its numbers are the data's, its parts are all there, hostile texts stay texts."""

import json
import re
from dataclasses import replace

import pytest

from midmask.choice.report_text import GAINS, LONGEST_PASSAGE, code, verdict_markdown
from midmask.choice.verdict import QueryCounts, Recommendation, SystemEstimate
from midmask.choice.wording import score, size
from tests.support.verdicts import DROPPED, HOSTILE, PUMP, systems, undecided, verdict

CELL = re.compile(r"(?<!\\)\|")


def tables(text: str) -> list[list[list[str]]]:
    """Rows of cells of each table, the head first, the rule left out."""
    found: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and all(line.startswith("|") for line in lines):
            found.append([[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines[:1] + lines[2:]])
    return found


def number(text: str) -> float:
    return float(text.replace("\u2212", "-").replace(",", ""))


def numbers(text: str) -> list[float]:
    return [number(found) for found in re.findall(r"[+\u2212]?\d[\d,]*\.?\d*", text)]


def check(row: list[str], one: SystemEstimate, baseline: str) -> None:
    assert int(row[0]) == one.rank and row[2] == one.representation
    if one.label == baseline:
        assert row[3:5] == ["baseline", "baseline"]
    else:
        assert numbers(row[3]) == pytest.approx([one.made_gain, one.made_low, one.made_high], abs=5.1e-4)
        assert numbers(row[4]) == pytest.approx([one.gain, one.gain_low, one.gain_high], abs=5.1e-4)
    seconds = sum(
        value * {"s": 1, "min": 60, "h": 3600}[unit]
        for value, unit in ((int(value), unit) for value, unit in re.findall(r"(\d+) (s|min|h)", row[5]))
    )
    assert seconds == pytest.approx(one.seconds, rel=0.05, abs=1)
    assert row[6] == size(one.bytes_per_passage)


def test_every_number_of_the_tables_is_the_datas() -> None:
    finalists, given_up, sources = tables(verdict_markdown(verdict()))
    assert finalists[0] == ["rank", "system", "representation", *GAINS, "computing", "per passage"] == given_up[0]
    assert (len(finalists), len(given_up)) == (7, 7)
    for row, one in zip([*finalists[1:], *given_up[1:]], systems(), strict=True):
        check(row, one, "none · dense")
    assert [row[1] for row in finalists[1:]] == ["**retromae**", "dupmae", "lexmae", "none", "mlm", "bm25"]
    assert [number(row[1]) for row in sources[1:]] == list(verdict().queries.source.values())


def test_the_answer_comes_first_and_the_parts_follow() -> None:
    text = verdict_markdown(verdict())
    lines = [line for line in text.splitlines() if line]
    assert lines[0] == "# docs:handbook: which middle training?"
    assert lines[1].startswith("**Take “retromae · dense”: +0.065 nDCG@10 over “none · dense” on 626 made test queries")
    assert "+0.024 to +0.062" in lines[1]
    assert [line for line in lines if line.startswith("## ")] == [
        *("## Systems", "## Queries", "## How far to believe it", "## Queries it wins", "## Queries it loses"),
        *("## Not tried", "## What this does not show", "## Use the model", "## Make it again"),
    ]
    assert "4,180 queries were made and 2,503 (60%) kept" in text and "18,432 passages" in text
    assert "11 h of a budget of 12 h were spent." in text
    assert "none · dense: not found" in text and "retromae · dense: rank 1" in text
    assert "- cotmote · dense: its experts need twice the memory" in text
    assert "```sh\nmidmask search verdicts/handbook\n```" in text
    assert "model = SentenceTransformer('verdicts/handbook/model')" in text
    assert text.endswith("```sh\nmidmask choose docs:handbook --budget 12h --set queries.seed=0\n```\n")


def test_levels_are_in_the_data_alone() -> None:
    one = verdict()
    text = verdict_markdown(one)
    assert all(score(value) not in text for each in one.systems for value in (each.estimate, each.low, each.high))
    assert {"estimate", "low", "high"} <= json.loads(one.as_json())["systems"][0].keys()


def test_why_systems_were_given_up_stands_once_for_all_that_share_it() -> None:
    first, *others = verdict().given_up
    slow = replace(first, dropped="its time was up")
    text = verdict_markdown(replace(verdict(), systems=(*verdict().finalists, slow, *others)))
    assert "- cotmae · dense: its time was up" in text and text.count(DROPPED) == 1


def test_no_difference_takes_the_cheapest() -> None:
    text = verdict_markdown(undecided())
    assert "**Not distinguishable: take the cheapest, which is “none · dense”, for 21 min of computing.**" in text
    assert "which contains 0" in text and "an assumption" in text


def test_hostile_texts_stay_texts() -> None:
    text = verdict_markdown(verdict())
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<" not in prose, "no HTML"
    assert not re.search(r"(?<!\\)\]\(", prose), "no link or image"
    assert "\\*\\*bold\\*\\*" in prose and "\n# No heading" not in prose and "\n| no |" not in prose
    assert text.count("```") == 8, "the passage's own fence opens nothing"
    text.encode("utf-8")


def test_long_passages_are_cut_and_marked() -> None:
    text = verdict_markdown(verdict())
    assert len(PUMP) > LONGEST_PASSAGE and PUMP[:LONGEST_PASSAGE] + " …" in text and PUMP not in text


def test_a_fence_is_longer_than_what_is_in_it() -> None:
    assert code("a ````b", "sh") == "`````sh\na ````b\n`````"
    assert code("plain", "") == "```\nplain\n```"


def test_what_is_empty_has_no_part() -> None:
    one = replace(verdict(), won=(), lost=(), not_tried={}, limits=(), systems=verdict().finalists)
    text = verdict_markdown(replace(one, queries=QueryCounts({}, 0, 0, 0, 0, 0)))
    assert not any(f"## {name}" in text for name in ("Queries it", "Not tried", "Given up"))
    assert "No limits were recorded." in text


def test_where_bm25_wins_the_model_is_the_best_encoders() -> None:
    one = replace(verdict(), recommendation=Recommendation("bm25", "bm25", True, ""))
    best = next(row for row in one.finalists if row.model)
    text = verdict_markdown(one)
    assert one.delivered == best and f"the model here is that of “{best.label}”" in text
    assert "SentenceTransformer(" in text


def test_bm25_has_no_model_to_load() -> None:
    one = replace(verdict(), recommendation=Recommendation("bm25", "bm25", True, ""), model="")
    text = verdict_markdown(one)
    assert "bm25 has no model: nothing was trained for it." in text and "sentence_transformers" not in text
    ordinary = replace(verdict(), recommendation=Recommendation("dupmae", "384+384", True, ""))
    assert "SentenceTransformer(" in verdict_markdown(ordinary)


def test_markup_in_names_does_not_break_a_row() -> None:
    odd = replace(systems()[1], system=f"a|b`c`\n{HOSTILE}")
    one = replace(verdict(), systems=(systems()[0], odd, *systems()[2:]))
    assert all(len(row) == 7 for row in tables(verdict_markdown(one))[0])
