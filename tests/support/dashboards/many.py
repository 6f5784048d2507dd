"""A store of thousands of finished runs, written in bulk through MLflow's own tables: a job takes a second for each.

Systems are recipes × protocols, each with five seeds; measures grow with the recipe, so that the order is known.
"""

import uuid
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlRun, SqlTag
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy import insert

from midmask.tracking import Tracker, metric_key
from tests.support.dashboards.tracked import QUICK

RUNS = 5000
SEEDS = range(5)
BEGAN = 1_760_000_000_000
"""Milliseconds since 1970 at which the first run started; the others follow by seconds."""

NAMES = ("retromae", "dupmae", "mlm", "none", "lexmae", "cotmae", "condenser", "simlm")


def fill(uri: str, home: Path, runs: int, params: int = 12) -> None:
    """Creates the store at `uri` with that many runs, each with that many params beside its seed."""
    with Tracker(uri, home, QUICK) as tracker:
        experiment = int(tracker.experiment_id)
    store = SqlAlchemyStore(uri, (home / "mlartifacts").as_uri())
    rows: dict[type, list[dict[str, object]]] = {SqlRun: [], SqlTag: [], SqlParam: [], SqlLatestMetric: []}
    for number, (system, seed) in zip(range(runs), _systems(), strict=False):
        _add(rows, experiment, number, system, seed, params)
    with store.engine.begin() as connection:
        for table, found in rows.items():
            connection.execute(insert(table), found)
    store.engine.dispose()


def measure(system: int, seed: int) -> float:
    """nDCG@10 of a run: later systems are better, by more than seeds differ."""
    return round(0.2 + 0.6 * system / 5000 + 1e-6 * seed, 6)


def _systems() -> Iterator[tuple[int, int]]:
    return product(range(1_000_000), SEEDS)


def _add(
    rows: dict[type, list[dict[str, object]]], experiment: int, number: int, system: int, seed: int, params: int
) -> None:
    run_id = uuid.UUID(int=number).hex
    recipe = NAMES[system % len(NAMES)]
    started = BEGAN + 1000 * number
    own = {"run_uuid": run_id}
    rows[SqlRun].append(
        {
            **own,
            "name": f"evaluate-{recipe}-{number}",
            "user_id": "midmask",
            "status": "FINISHED",
            "start_time": started,
            "end_time": started + 500,
            "lifecycle_stage": "active",
            "experiment_id": experiment,
            "source_type": "LOCAL",
            "artifact_uri": f"file:///nowhere/{run_id}/artifacts",
        }
    )
    tags = {
        **{"recipe": recipe, "objective": recipe, "protocol": f"protocol {system // 8 % 5}", "seed": str(seed)},
        **{"representation": ("dense", "splade")[system // 40 % 2], "backbone": "tiny", "pretrain_on": "corpus"},
        **{"corpus": "pydocs", "step": "evaluate", "status": "finished", "fingerprint": run_id[-12:]},
    }
    rows[SqlTag] += [{**own, "key": f"midmask.{key}", "value": value} for key, value in tags.items()]
    settings = {"stages.0.train.seed": str(seed), "objective.weight": str(system // 80)}
    settings |= {f"setting.{at}": str(at) for at in range(params - len(settings) + 1)}
    rows[SqlParam] += [{**own, "key": key, "value": value} for key, value in settings.items()]
    value = measure(system, seed)
    metrics = {metric_key("pydocs", "dev", name): value for name in ("nDCG@10", "RR@10", "R@100")}
    metrics |= {"cost/train_seconds": 3600.0, "cost/cpu_hours": 2.0, "cost/bytes_per_passage": 512.0}
    rows[SqlLatestMetric] += [
        {**own, "key": key, "value": value, "timestamp": started, "step": 0, "is_nan": False}
        for key, value in metrics.items()
    ]
