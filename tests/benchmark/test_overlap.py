"""What a benchmark says of test texts that its trainings have read: a table, warnings at the results, nothing else."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.layout import Layout, lay_out
from midmask.benchmark.overlap import collect_overlaps, compute_overlaps, log_warnings
from midmask.benchmark.records import read_records
from midmask.benchmark.report import report_of
from midmask.corpora.writer import write_beir
from midmask.experiment.graph import Graph
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.store.place import Place
from tests.support.benchmark.synthetic import drawn, results
from tests.support.benchmark.tiny import SHORT

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "results" / "records" / "canonical"


def write(folder: Path, name: str, copied: int = 0) -> str:
    """Thirty passages with a query each, a third for train, dev and test; and copies of target's test passages."""

    def texts(of: str, word: str) -> list[str]:
        return [" ".join(f"{of}{word}{number}x{at}" for at in range(12)) for number in range(30)]

    passages = [(f"d{number}", "", text) for number, text in enumerate(texts(name, "p"))]
    passages += [(f"c{number}", "", text) for number, text in enumerate(texts("target", "p")[20 : 20 + copied])]
    queries = [{"_id": f"q{number}", "text": text} for number, text in enumerate(texts(name, "q"))]
    qrels = {
        split: [(f"q{number}", f"d{number}", 1) for number in range(first, first + 10)]
        for first, split in ((0, "train"), (10, "dev"), (20, "test"))
    }
    write_beir(Place(str(folder / name)), passages, queries, qrels)
    return f"beir:{folder / name}"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    target, planted, other = write(tmp_path, "target"), write(tmp_path, "planted", copied=2), write(tmp_path, "other")
    return lay_out(
        Benchmark(
            **{"name": "try", "title": "A try", "corpus": target, "systems": ("bm25", "none", "mlm"), "changes": SHORT},
            **{"collections": {"corpus": (), "planted": (planted,)}, "zero_shot": (other,)},
            settings={"in_batch": Setting(protocols={"dense": "in_batch"})},
        )
    )


def cells_of(table: str) -> dict[tuple[str, str], list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    return {(training, on): shares for training, on, *shares in rows[2:]}


def test_each_training_has_a_line_for_each_split_without_being_trained(layout: Layout, tmp_path: Path) -> None:
    told = compute_overlaps(layout, Place(str(tmp_path / "store")))
    assert {path.name for path in (tmp_path / "store").iterdir() if not path.suffix} == {"prepare", "overlap"}
    nothing, whole, third = ["0.0% of 10", "0.0% of 10", "0.0% of 30"], "100.0% of 30", "33.3% of 30"
    assert cells_of(told) == {
        ("middle training on target", "target dev"): ["0.0% of 10", "100.0% of 10", whole],
        ("middle training on target", "target test"): ["0.0% of 10", "100.0% of 10", whole],
        ("middle training on target", "other test"): nothing,
        ("middle training on planted", "target dev"): ["0.0% of 10", "0.0% of 10", "6.7% of 30"],
        ("middle training on planted", "target test"): ["0.0% of 10", "20.0% of 10", "6.7% of 30"],
        ("middle training on planted", "other test"): nothing,
        ("fine-tuning on target", "target dev"): ["0.0% of 10", "0.0% of 10", third],
        ("fine-tuning on target", "target test"): ["0.0% of 10", "0.0% of 10", third],
        ("fine-tuning on target", "other test"): nothing,
    }
    (warning,) = [line for line in told.splitlines() if line.startswith("Warning: ")]
    assert "target test: middle training on planted reads 20.0% of 10 relevant passages" in warning


def test_a_report_warns_below_the_results_on_a_split_that_was_read(layout: Layout, tmp_path: Path) -> None:
    storage = Place(str(tmp_path / "store"))
    compute_overlaps(layout, storage)
    made = {
        cell.name: results(*(drawn({cell.key: 0.5}, corpus=corpus, split=split) for corpus, split in cell.evaluations))
        for cell in layout.cells
    }
    text = report_of(replace(layout, recorded=made), storage, tmp_path / "report", {})
    sections = dict(part.split("\n\n", 1) for part in text.split("\n## ")[1:])
    warned = {heading for heading, section in sections.items() if "Warning: " in section}
    assert warned == {"target test, dense, in_batch"}
    assert len(cells_of(sections["What the trainings have read"])) == 9


def test_warnings_are_logged_before_anything_is_trained(layout: Layout, tmp_path: Path, caplog) -> None:
    storage = Place(str(tmp_path / "store"))
    runner = Runner(storage, LOCAL, log_warnings)
    for step in layout.steps().values():
        if step.name == "prepare":
            runner.compute(step)
    targets = [step for cell in layout.cells for step in cell.targets]
    first = Graph.left_in(storage, targets).ready()[:3]
    assert {step.name for step in first} == {"overlap"}
    with caplog.at_level(logging.WARNING, "midmask.benchmark.overlap"):
        for step in first:
            runner.compute(step)
    logged = [record for record in caplog.records if record.name == "midmask.benchmark.overlap"]
    assert [record.message[:58] for record in logged] == ["target test: middle training on planted reads 20.0% of 10 "]


def test_records_from_before_have_no_overlaps_and_those_of_today_keep_them(layout: Layout, tmp_path: Path) -> None:
    assert {tuple(record.measurement.overlaps) for record in read_records(Place(str(RECORDS))).values()} == {()}
    storage, elsewhere = Place(str(tmp_path / "store")), Place(str(tmp_path / "elsewhere"))
    compute_overlaps(layout, storage)
    rows = collect_overlaps(layout, storage)
    known = {cell.name: [row for row in rows if row["stage"] == "fine-tuning"] for cell in layout.cells}
    assert collect_overlaps(replace(layout, recorded_overlaps=known), elsewhere) == known[layout.cells[0].name]
    shutil.rmtree(tmp_path / "store" / "overlap")
    assert collect_overlaps(layout, storage) == []
