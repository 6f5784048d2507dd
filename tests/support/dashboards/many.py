"""A store of thousands of finished runs, written in bulk through MLflow's own tables: a job takes a second for each.

Systems are recipes × protocols, each with five seeds; measures grow with the system, so that the order is known.
"""

import uuid
from pathlib import Path
from typing import Any

from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlRun, SqlTag
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy import insert

from midmask.tracking import Tracker, metric_key
from tests.support.dashboards.tracked import QUICK

SEEDS = range(5)
BEGAN = 1_760_000_000_000
"""Milliseconds since 1970 at which the first run started; the others follow by seconds."""

Rows = dict[type, list[dict[str, Any]]]
NAMES = ("retromae", "dupmae", "mlm", "none", "lexmae", "cotmae", "condenser", "simlm")


def fill(uri: str, home: Path, runs: int, params: int = 12) -> None:
    """Creates the store at `uri` with that many runs, each with that many params beside its seed."""
    with Tracker(uri, home, QUICK) as tracker:
        experiment = int(tracker.experiment_id)
    store = SqlAlchemyStore(uri, (home / "mlartifacts").as_uri())
    rows: Rows = {SqlRun: [], SqlTag: [], SqlParam: [], SqlLatestMetric: []}
    for number in range(runs):
        _add(rows, experiment, number, *divmod(number, len(SEEDS)), params)
    with store.engine.begin() as connection:
        for table, found in rows.items():
            connection.execute(insert(table), found)
    store.engine.dispose()


def _add(rows: Rows, experiment: int, number: int, system: int, seed: int, params: int) -> None:
    run_id, recipe, started = uuid.UUID(int=number).hex, NAMES[system % len(NAMES)], BEGAN + 1000 * number
    own = {"run_uuid": run_id}
    run = {"name": f"evaluate-{recipe}-{number}", "user_id": "midmask", "status": "FINISHED", "source_type": "LOCAL"}
    run |= {"start_time": started, "end_time": started + 500, "lifecycle_stage": "active"}
    place = {"experiment_id": experiment, "artifact_uri": f"file:///nowhere/{run_id}/artifacts"}
    rows[SqlRun].append({**own, **run, **place})
    tags = {
        **{"recipe": recipe, "objective": recipe, "protocol": f"protocol {system // 8 % 5}", "seed": str(seed)},
        **{"representation": ("dense", "splade")[system // 40 % 2], "backbone": "tiny", "pretrain_on": "corpus"},
        **{"corpus": "pydocs", "step": "evaluate", "status": "finished", "fingerprint": run_id[-12:]},
    }
    rows[SqlTag] += [{**own, "key": f"midmask.{key}", "value": value} for key, value in tags.items()]
    settings = {"stages.0.train.seed": str(seed), "objective.weight": str(system // 80)}
    settings |= {f"setting.{at}": str(at) for at in range(params - len(settings) + 1)}
    rows[SqlParam] += [{**own, "key": key, "value": value} for key, value in settings.items()]
    value = round(0.2 + 0.6 * system / 5000 + 1e-6 * seed, 6)
    metrics = {metric_key("pydocs", "dev", name): value for name in ("nDCG@10", "RR@10", "R@100")}
    metrics |= {"cost/train_seconds": 3600.0, "cost/cpu_hours": 2.0, "cost/bytes_per_passage": 512.0}
    more = {"timestamp": started, "step": 0, "is_nan": False}
    rows[SqlLatestMetric] += [{**own, **more, "key": key, "value": value} for key, value in metrics.items()]
