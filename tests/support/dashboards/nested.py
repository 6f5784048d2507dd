"""A small sweep as the tracker writes it: a parent and three trials with curves, measures, a dataset and a model."""

from dataclasses import replace
from pathlib import Path

from midmask.tracking import Dataset, TrackedModel, TrackedRun, Tracker, metric_key
from tests.support.dashboards.tracked import QUICK, tags

RATIOS = (0.15, 0.3, 0.5)
STEPS = range(0, 100, 5)
KEY = "pretrain/loss"
MEASURE = metric_key("squad", "dev", "nDCG@10")
SQUAD = Dataset("squad", "c0ffee123456", "beir:/data/squad", "pretrain", {"passages": 18000})
REPORT = "| system | nDCG@10 |\n| --- | --- |\n| retromae 0.3 | 0.52 |"


def name_of(ratio: float) -> str:
    return f"trial {ratio}-retromae-tiny-{round(1000 * ratio):06x}"


def measure_of(ratio: float) -> float:
    return round(0.5 + ratio / 10, 3)


def trial(tracker: Tracker, parent: TrackedRun, ratio: float) -> str:
    identity = f"7{round(1000 * ratio):05x}"
    own = tags("trial", "retromae", identity, recipe="retromae", backbone="tiny")
    run = tracker.run(name_of(ratio), tags=own, params={"objective.encoder_mask_ratio": ratio}, parent=parent.id)
    run.log_inputs([SQUAD])
    model = TrackedModel(name_of(ratio), "pretrain", identity, "encoder", f"/store/pretrain/{identity}", {"r": ratio})
    for step in STEPS:
        run.log({KEY: 9 - ratio - step / 50}, step)
        run.log_next({"system/cpu_utilization_percentage": 50 + step / 10})
    run.log_output_model(model, STEPS[-1])
    run.log({MEASURE: measure_of(ratio)}, 0, of=model, on=replace(SQUAD, context="eval"))
    run.finish()
    return run.id


def sweep(uri: str, home: Path) -> tuple[str, str, dict[float, str]]:
    """The experiment, the parent and the trials by ratio: their ids."""
    with Tracker(uri, home, QUICK) as tracker:
        own = tags("sweep", "retromae", "5eed", recipe="retromae", backbone="tiny")
        with tracker.run("sweep_mask_ratio-retromae-tiny-5eed", tags=own, params={"space.search": "grid"}) as parent:
            parent.log_inputs([SQUAD])
            trials = {ratio: trial(tracker, parent, ratio) for ratio in RATIOS}
            parent.log_text(REPORT, "report.md")
            parent.describe(REPORT)
        return tracker.experiment_id, parent.id, trials
