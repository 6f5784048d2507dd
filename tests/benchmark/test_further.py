"""Several collections in one benchmark: what is shared, what is told apart, and what stays as with one collection."""

from dataclasses import replace
from pathlib import Path

import pytest

from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.artifact import Place
from midmask.benchmark.collect import collect
from midmask.benchmark.design import Benchmark, FurtherCorpus, Setting
from midmask.benchmark.job import Job, describe, preset_with_flags, with_records
from midmask.benchmark.layout import Layout, lay_out
from midmask.benchmark.records import RecordWriter, identity_of_cell
from midmask.benchmark.results import read_results
from midmask.commands import benchmark_middle_training as command
from midmask.errors import UserError
from midmask.experiment.step import Step
from midmask_papers.report import report_of
from tests.support.benchmark.tiny import SHORT, run_here, write_collection

JOB = Path(__file__).resolve().parents[2] / "jobs" / "benchmark_middle_training.py"
MEASURES = ("RR@10", "R@100")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Three collections of different words."""
    folder = tmp_path_factory.mktemp("further")
    found = {name: write_collection(folder / name) for name in ("first", "second", "wiki")}
    for name, word in (("second", "copper"), ("wiki", "violet")):
        for file in ("corpus.jsonl", "queries.jsonl"):
            path = folder / name / file
            path.write_text(path.read_text("utf-8").replace("amber", word), "utf-8")
    return found


def benchmark(places: dict[str, str], *further: str, **changes: object) -> Benchmark:
    fields = {
        "name": "try",
        "title": "A try",
        "corpus": places["first"],
        "further": tuple(FurtherCorpus(corpus=places[name], measures=("RR@10",)) for name in further),
        "systems": ("bm25", "none", "mlm"),
        "collections": {"corpus": (), "wiki": (places["wiki"],)},
        "settings": {"in_batch": Setting(protocols={"dense": "in_batch"})},
        "splits": ("test",),
        "measures": MEASURES,
        "changes": {**SHORT, "stages.*.train.steps": 2, "stages.*.train.batch_size": 4},
        **changes,
    }
    return Benchmark(**fields)


@pytest.fixture(scope="module")
def layout(places: dict[str, str]) -> Layout:
    return lay_out(benchmark(places, "second"))


@pytest.fixture(scope="module")
def store(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """With all cells measured."""
    found = Place(str(tmp_path_factory.mktemp("store")))
    run_here(layout, found)
    return found


def step_of(layout: Layout, name: str, system: str, collection: str, further: str = "") -> Step:
    (cell,) = (
        cell
        for cell in layout.cells
        if (cell.key.system, cell.key.collection, cell.further) == (system, collection, further)
    )
    (found,) = (step for step in cell.evaluations[cell.main].upstream() if step.name == name)
    return found


def test_every_system_has_a_cell_on_every_collection(layout: Layout) -> None:
    assert [cell.name for cell in layout.cells] == [
        "bm25",
        "none, dense, in_batch, seed 0",
        "mlm, corpus, dense, in_batch, seed 0",
        "mlm, wiki, dense, in_batch, seed 0",
        "bm25, on second",
        "none, dense, in_batch, on second, seed 0",
        "mlm, corpus, dense, in_batch, on second, seed 0",
        "mlm, wiki, dense, in_batch, on second, seed 0",
    ]
    assert {name for cell in layout.cells[4:] for name in cell.evaluations} == {("second", "test")}


def test_cells_on_the_first_collection_are_those_of_a_run_on_it_alone(layout: Layout, places: dict[str, str]) -> None:
    alone = lay_out(benchmark(places))
    assert [cell.name for cell in alone.cells] == [cell.name for cell in layout.cells[:4]]
    for one, other in zip(alone.cells, layout.cells, strict=False):
        assert {name: step.fingerprint for name, step in one.evaluations.items()} == {
            name: step.fingerprint for name, step in other.evaluations.items()
        }


def test_a_record_of_before_is_still_found(places: dict[str, str]) -> None:
    """Where these change, no record in docs/results/records is found any more: say so in CHANGELOG.md."""
    assert [identity_of_cell(cell) for cell in lay_out(benchmark(places)).cells] == [
        "8de30183fa2b17fa",
        "cf4dbfe3f4550fe4",
        "796c1d6740cd4a3e",
        "e9a0aaed5225e6bd",
    ]


def test_middle_trainings_that_read_other_collections_are_shared(layout: Layout) -> None:
    wiki = [step_of(layout, "pretrain", "mlm", "wiki", further) for further in ("", "second")]
    corpus = [step_of(layout, "pretrain", "mlm", "corpus", further) for further in ("", "second")]
    assert wiki[0].fingerprint == wiki[1].fingerprint
    assert corpus[0].fingerprint != corpus[1].fingerprint, "each reads what it is fine-tuned on"
    read = [step.inputs["tokens"].inputs["corpus"].config.short_name for step in (wiki[0], *corpus)]
    assert read == ["wiki", "first", "second"]
    assert sum(step.name == "pretrain" for step in layout.steps().values()) == 3


def test_fine_tuning_and_mining_are_of_the_further_collection(layout: Layout, places: dict[str, str]) -> None:
    for system, collection in (("none", "none"), ("mlm", "wiki"), ("mlm", "corpus")):
        tuned = step_of(layout, "finetune", system, collection, "second")
        assert tuned.inputs["corpus"].config.name == places["second"]
        assert tuned.inputs["tokens"].inputs["corpus"].config.name == places["second"]
    mined = benchmark(places, "second", settings={"dpr": Setting(protocols={"dense": "dpr"})})
    (*_, last) = lay_out(mined).cells
    (mine,) = (step for step in last.evaluations[last.main].upstream() if step.name == "mine")
    assert mine.inputs["corpus"].config.name == places["second"]


def test_results_and_the_report_tell_the_collections_apart(layout: Layout, store: Place, tmp_path: Path) -> None:
    found = collect(layout.cells, store)
    assert [(one.corpus, one.further) for one in found] == [("first", False)] * 4 + [("second", True)] * 4
    assert {frozenset(one.measures) for one in found.where(corpus="first")} == {frozenset(MEASURES)}
    assert {frozenset(one.measures) for one in found.where(corpus="second")} == {frozenset(["RR@10"])}
    found.write(Place(str(tmp_path / "results.parquet")))
    assert list(read_results(Place(str(tmp_path / "results.parquet")))[0]) == list(found)
    costs = report_of(layout, store, tmp_path, {}).partition("## What it cost")[2]
    assert costs.count("| first ") == costs.count("| second ") == 4


def test_one_vocabulary_serves_all_collections(layout: Layout, store: Place) -> None:
    first = step_of(layout, "finetune", "none", "none").inputs["tokens"]
    for collection in ("corpus", "wiki"):
        second = step_of(layout, "finetune", "mlm", collection, "second").inputs["tokens"]
        assert second.fingerprint != first.fingerprint
        files = [(step.place(store) / "tokenizer" / "tokenizer.json").read() for step in (first, second)]
        assert files[0] == files[1]


def options(folder: Path, places: dict[str, str], *more: str) -> Options:
    words = ["--corpus", places["first"], "--corpus", places["second"], "--pretrain-on", places["wiki"], *more]
    stores = ["--storage", str(folder / "store"), "--tracking-uri", f"sqlite:///{folder}/m.db"]
    flags = parse([*words, *stores], None, command.add_flags)
    return replace(resolve(flags, JOB), home=folder)


def test_records_are_of_one_collection_each(
    layout: Layout, store: Place, places: dict[str, str], tmp_path: Path
) -> None:
    before = Job(layout, options(tmp_path, places), tmp_path / "out")
    assert len(before.left()) == describe(before).count("to do     ") == 8, "what the price is of"
    records = Place(str(tmp_path / "records"))
    RecordWriter(records, layout.cells, store, lambda cell: cell.name).write_measured()
    assert sum("on-second" in name for name in records.names()) == 4 and len(records.names()) == 8
    job = Job(with_records(layout, records), options(tmp_path, places), tmp_path / "out", records)
    assert job.left() == []
    assert list(collect(layout.cells, job.storage, job.layout.recorded)) == list(collect(layout.cells, store))
    alone = with_records(lay_out(benchmark(places)), records)
    assert len(alone.recorded) == 4, "of the first collection"


def asked(folder: Path, places: dict[str, str], preset: str, *more: str) -> Benchmark:
    flags = parse(["--preset", preset], None, command.add_flags)
    return preset_with_flags(options(folder, places, *more), flags)


@pytest.mark.parametrize(
    ("preset", "more", "message"),
    [
        ("retromae", "first", "is given twice"),
        ("retromae", "beir:/elsewhere/second", "results call it 'second', as they call beir:.*/second"),
        ("collections", "", "--preset collections .* one --corpus"),
        ("sigir23", "tripclick:/data/tripclick", "--corpus tripclick:/data/tripclick: --preset sigir23"),
    ],
)
def test_collections_that_do_not_go_together_are_refused(
    preset: str, more: str, message: str, places: dict[str, str], tmp_path: Path
) -> None:
    found = asked(tmp_path, places, "retromae", "--corpus", "nq:/data/nq")
    assert found.corpora == (places["first"], places["second"], "nq:/data/nq") and found.measures == ("retromae",)
    assert [one.measures for one in found.further] == [("retromae",), ("nq",)]
    flags = ["--corpus", places.get(more, more)] if more else []
    with pytest.raises(UserError, match=message):
        asked(tmp_path, places, preset, *flags)


def test_other_jobs_take_one_collection(places: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"--corpus is given 2 times, and only a benchmark .* --corpus pydocs"):
        parse(["--corpus", places["first"], "--corpus", "pydocs"], None)
    assert parse([], None).corpus is None and parse(["--corpus", "pydocs"], None).corpus == "pydocs"


def test_a_set_that_is_only_searched_keeps_a_name_of_its_own(places: dict[str, str], tmp_path: Path) -> None:
    """BEIR has a set called nq, which is not NQ by its answers."""
    other = write_collection(tmp_path / "second")
    cells = lay_out(benchmark(places, "second", zero_shot=(other, places["wiki"]))).cells
    assert set(cells[0].evaluations) == {("first", "test"), ("beir-second", "test"), ("wiki", "test")}
    assert set(cells[-1].evaluations) == {("second", "test")}, "papers search BEIR after MS MARCO alone"
