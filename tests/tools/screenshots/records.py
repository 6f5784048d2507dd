"""A benchmark's records (docs/results/records) as tracked runs, so that pages show what the pages of results say."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.benchmark.records import CellRecord, read_records
from midmask.benchmark.results import Result
from midmask.identity import fingerprint
from midmask.tracking import TrackedRun, Tracker, collection_key, metric_key, queries_key


def track_records(uri: str, home: Path, records: Path, backbone: str) -> None:
    """One finished run for each record, with its measures, its values per query and its costs.

    Args:
        home: folder of the runs' files.
    """
    with Tracker(uri, home) as tracker, tempfile.TemporaryDirectory() as folder:
        for number, record in enumerate(read_records(Place(str(records))).values()):
            _track(tracker, record, Path(folder) / f"{number}", backbone)
        tracker.find("none", step="none")  # waits until all is sent: the files go when this returns


def _track(tracker: Tracker, record: CellRecord, folder: Path, backbone: str) -> None:
    first = record.results[0]
    key = first.key
    tags = {
        **{"job": "benchmark_middle_training", "step": "evaluate", "recipe": key.system, "corpus": first.corpus},
        **{"objective": key.system, "representation": key.representation, "pretrain_on": key.collection},
        **{"seed": str(first.seed), "fingerprint": record.measurement.fingerprint},
    }
    if key.system != "bm25":
        tags |= {"backbone": backbone, "protocol": key.setting}
    run = tracker.run(f"{key.system}, seed {first.seed}", tags=_named(tags), params={})
    for result in record.results:
        _measure(run, result, folder)
    if first.costs is not None:
        run.log(first.costs.metrics(), 0)
    run.finish()


def _named(tags: dict[str, str]) -> dict[str, str]:
    return {f"midmask.{name}": value for name, value in tags.items()}


def _measure(run: TrackedRun, result: Result, folder: Path) -> None:
    """The measures of one place. A record has no fingerprint of its collection, so the name stands for it."""
    corpus, split = result.corpus, result.split
    queries = sorted(set(result.per_query["query_id"].to_pylist()))
    run.tag({collection_key(corpus): fingerprint(corpus), queries_key(corpus, split): f"{len(queries)}"})
    run.log({metric_key(corpus, split, name): mean for name, mean in result.measures.items()}, 0)
    path = folder / f"{corpus}.{split}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(result.per_query, path)
    run.log_file(path, "per_query")
