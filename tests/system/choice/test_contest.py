"""What a contest tries, gives up and measures; a whole choice with a teacher, and what judgements say of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import midmask
from midmask import Corpus
from midmask.benchmark.layout import BenchmarkCell
from midmask.choice.contenders import LEXICAL, MEASURE, TUNED, Request, System
from midmask.choice.contest import Contest, LocalWorkshop
from midmask.choice.contest_terms import Clock, Conditions, ContestJournal
from midmask.choice.reveal import reveal
from midmask.choice.run import choose
from midmask.errors import UserError
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.queries.config import QueriesConfig
from midmask.store.place import Place
from tests.support.choice.documents import SETTINGS, SOURCES, SYSTEMS, conditions_in, documents, judged, workshop
from tests.tools.calibrate import collect, read_records

TUNED_ONLY, MLM = (System(system, "dense", TUNED) for system in ("none", "mlm"))


@pytest.fixture
def conditions(tmp_path: Path) -> Conditions:
    return conditions_in(tmp_path)


def test_what_is_trained_already_takes_part_though_no_time_is_left(conditions, tmp_path) -> None:
    """And what there was no time for is tried by a later round that has some."""
    first = ContestJournal(tmp_path / "first", "one")
    Contest(conditions, workshop(tmp_path), Clock(1e6), first).hold([LEXICAL, TUNED_ONLY])
    journal = ContestJournal(tmp_path / "second", "one")
    late = Contest(conditions, workshop(tmp_path), Clock(60.0, spent=59.0), journal)
    late.hold([LEXICAL, TUNED_ONLY, MLM])
    assert late.measured == (LEXICAL, TUNED_ONLY) and late.not_tried.keys() == {str(MLM)}
    journal.finalists = None
    again = Contest(conditions, workshop(tmp_path), Clock(1e6), journal)
    again.hold([LEXICAL, TUNED_ONLY, MLM])
    assert MLM in again.measured and not again.not_tried
    assert MLM in journal.rounds[1].contenders


class KeepsGoing(LocalWorkshop):
    """Measures what can be measured, as the workshop on a cluster does."""

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> dict[str, str]:
        failures = {}
        for cell in cells:
            try:
                super().measure([cell], until)
            except UserError as error:
                failures[cell.name] = str(error)
        return failures


def test_a_training_that_fails_is_not_tried_for_the_reason_that_it_failed_for(conditions, tmp_path) -> None:
    def fail(*given: object, **more: object) -> dict[str, object]:
        raise UserError("the disk is full")

    failing = KeepsGoing(Runner(Place(str(tmp_path / "store")), {**LOCAL, "pretrain": fail}))
    journal = ContestJournal(tmp_path / "verdict", "one")
    running = Contest(conditions, failing, Clock(1e6), journal)
    running.hold([LEXICAL, TUNED_ONLY, MLM])
    assert running.not_tried == {str(MLM): "round 1: the disk is full"}
    assert MLM not in running.measured and not any(MLM in one.contenders for one in journal.rounds[1:])


def test_no_system_is_both_measured_and_not_tried(conditions, tmp_path) -> None:
    journal = ContestJournal(tmp_path / "verdict", "one")
    running = Contest(conditions, workshop(tmp_path), Clock(1e6), journal)
    running.hold([LEXICAL, TUNED_ONLY, MLM])
    journal.give_up([MLM], "behind")
    running.hold([LEXICAL, TUNED_ONLY, MLM])
    assert MLM in running.measured and str(MLM) in journal.given_up and not running.not_tried


def test_judgements_are_compared_with_the_verdict(tmp_path):
    """The judged value of a system is what `midmask.evaluate` measures of its model on the same queries."""
    titles, texts = documents()
    queries, numbers = judged()
    ids = {"test": [str(n) for n in range(len(queries))]}
    corpus = Corpus.from_texts(texts, titles=titles, queries=queries, relevant=numbers, splits=ids, name="papers")
    store = Place(str(tmp_path / "store"))
    request = Request(
        **{"corpus": corpus.in_store(store), "budget": 1200.0, "out": tmp_path / "verdict", "changes": SETTINGS},
        **{"queries": QueriesConfig(sources=SOURCES), "systems": SYSTEMS, "representations": ("dense",)},
    )
    workshop = LocalWorkshop(Runner(store, LOCAL))
    choice = choose(request, workshop)
    found = reveal(request, choice, workshop)
    rows = {(one.system, one.representation): one.judged for one in found.systems}
    for one in choice.verdict.systems:
        if one.representation == "dense":
            scores = midmask.evaluate(one.model, corpus, split="test", storage=tmp_path / "other", progress=False)
            assert rows[one.system, "dense"] == pytest.approx(scores["nDCG@10"], abs=1e-9)
    bm25 = midmask.evaluate("bm25", corpus, split="test", storage=tmp_path / "other", progress=False)
    assert rows["bm25", "bm25"] == pytest.approx(bm25["nDCG@10"], abs=1e-9)
    chosen = rows[choice.verdict.recommendation.system, choice.verdict.recommendation.representation]
    assert found.regret == pytest.approx(max(rows.values()) - chosen)
    assert len(found.records) == len(choice.verdict.systems) - 1
    results = {one.system: one.result for one in choice.measured}
    for record in found.records:
        own = results[record.system]
        base = choice.gains.reference_of(record.system)[own.split]
        assert record.made == pytest.approx(own.measures[MEASURE] - base.measures[MEASURE], abs=1e-9)
    found.write(tmp_path / "verdict")
    written = json.loads((tmp_path / "verdict" / "revealed.json").read_text())
    assert written["systems"][0].keys() == {"system", "representation", "judged"} and written["regret"] == found.regret
    collect([tmp_path / "verdict"], tmp_path / "records")
    assert read_records(tmp_path / "records") == (found.records, [found.level])
