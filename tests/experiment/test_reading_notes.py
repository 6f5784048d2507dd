"""The lines below a table of evaluations: whose queries they are, how far texts were read, and what to do about it."""

from typing import Any

from midmask.artifact import Artifact, Place
from midmask.experiment.reading_notes import notes
from midmask.experiment.report import evaluations_table, results_table, zero_shot_table


def evaluation(cut: float, *, made: bool = False, length: int | None = None, queries: int = 1225) -> Artifact:
    read = {"passages": {"length": 48, "cut_share": cut, "titles": False}, "queries": {"length": 24, "cut_share": 0.0}}
    return done(read, made=made, queries=queries, passage_length=length)


def done(read: dict[str, Any], *, made: bool = False, queries: int = 1225, **config: Any) -> Artifact:
    result = {"corpus": "few", "split": "test", "queries": queries, "split_made_here": made, "read": read}
    result |= {"split_rule": "60/20/20 by a hash" if made else "the corpus's own splits", "measures": {"nDCG@10": 0.5}}
    return Artifact(Place("/nowhere"), {"config": config, "result": {**result, "slices": {}}})


BM25 = done({"passages": {"titles": True}})


def test_more_than_a_fifth_cut_is_a_warning_that_names_the_flag() -> None:
    (warning,) = [line for line in notes({"mine": evaluation(0.21), "bm25": BM25}).splitlines() if "Warning" in line]
    assert (
        "21% of the passages of few are cut at 48 tokens" in warning
        and '--set tokens.max_length=96 (in Python: settings={"tokens.max_length": 96})' in warning
    )
    assert "--set evaluation.passage_length=96" in notes({"mine": evaluation(0.21, length=48)})


def test_the_recall_of_an_index_is_told_and_an_exact_search_has_none() -> None:
    deep, shallow = evaluation(0.0), evaluation(0.0)
    for one, found in ((deep, {"at_10": 0.987, "at_100": 0.9719}), (shallow, {})):
        one.record["config"]["index"] = "IVF256,Flat"
        one.record["result"]["index_recall"] = {"queries": 256, **found, "at_depth": 0.75}
    lines = notes({"mine": deep, "five": shallow, "bm25": BM25}).splitlines()
    said = "few test: against an exact search, IVF256,Flat finds"
    assert [line for line in lines if "exact" in line] == [
        f"mine, {said} 98.7% of its best 10, 97.2% of its best 100 (sample of 256 queries).",
        f"five, {said} 75.0% of its results (sample of 256 queries).",
    ]


def test_every_table_has_the_number_of_queries() -> None:
    evaluations = {"mine": evaluation(0.0), "bm25": BM25}
    for table in (evaluations_table("few", evaluations), results_table(evaluations), zero_shot_table([], evaluations)):
        header, _, *rows = (line.split("|") for line in table.split("\n\n")[0].splitlines())
        column = [cell.strip() for cell in header].index("queries")
        assert [row[column].strip() for row in rows] == ["1225", "1225"]
        assert table.endswith(notes(evaluations))
