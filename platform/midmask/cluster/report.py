"""What a sweep says in the end: its trials, the comparison with the baselines, and one sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Artifact
from midmask.cluster.study import Outcome
from midmask.evaluate.rendering import markdown
from midmask.evaluate.significance import Comparison, compare
from midmask.recipes.elsewhere import with_averages

FEW_QUERIES = 50
"""Dev queries below which no conclusion is drawn."""


@dataclass(frozen=True)
class System:
    """A row of the comparison: its evaluations by split, one per seed."""

    label: str
    evaluations: dict[str, list[Artifact]]
    pretrain_seconds: float | None = None
    finetune_seconds: float | None = None

    def mean(self, split: str, measure: str) -> float:
        return float(np.mean([artifact.result["measures"][measure] for artifact in self.evaluations[split]]))

    def spread(self, split: str, measure: str) -> float:
        """Standard deviation over seeds; 0 for a single one."""
        values = [artifact.result["measures"][measure] for artifact in self.evaluations[split]]
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def per_query(artifact: Artifact) -> pa.Table:
    """An evaluation's values: query_id, measure, value."""
    name = f"{artifact.result['corpus']}.{artifact.result['split']}.parquet"
    with (artifact.place / "per_query" / name).reading() as stream:
        return pq.read_table(stream)


def against(systems: Sequence[System], baseline: str, split: str, measure: str) -> dict[str, Comparison]:
    """Every system against the baseline: paired t-test over queries, seeds averaged first, Holm-corrected."""
    tables = {system.label: [per_query(artifact) for artifact in system.evaluations[split]] for system in systems}
    return {row.system: row for row in compare(tables, baseline=baseline, measure=measure)}


def evaluations_table(title: str, evaluations: Mapping[str, Artifact]) -> str:
    """One row per system, and one for each slice of its queries; one column per measure; on one collection."""
    names = list(next(iter(evaluations.values())).result["measures"])
    rows = {}
    for key, done in evaluations.items():
        rows[key] = done.result["measures"]
        rows |= {f"{key}, {name}": part["measures"] for name, part in done.result.get("slices", {}).items()}
    return _measures_table(title, rows, names)


def zero_shot_table(names: Sequence[str], evaluations: Mapping[str, Artifact]) -> str:
    """One row per collection, and per group its average; a measure that a collection lacks is a dash."""
    rows = with_averages(names, {key: done.result["measures"] for key, done in evaluations.items()})
    measures = list(dict.fromkeys(measure for values in rows.values() for measure in values))
    return _measures_table("zero-shot, test", rows, measures)


def _measures_table(title: str, rows: Mapping[str, Mapping[str, float]], measures: Sequence[str]) -> str:
    cells = [[key, *(_number(values.get(measure)) for measure in measures)] for key, values in rows.items()]
    return markdown([title, *measures], cells)


def trials_table(found: Sequence[Outcome], shares: Sequence[float], measure: str) -> str:
    """One row per trial in the order of asking: its parameters, the measure at each rung, how it ended."""
    paths = list(found[0].parameters) if found else []
    headers = [
        *(path.rsplit(".", 1)[-1] for path in paths),
        *(f"probe at {share:g}" for share in shares),
        measure,
        "end",
    ]
    rows = []
    for outcome in found:
        cells = [_cell(outcome.parameters[path]) for path in paths]
        cells += [_number(outcome.measures.get(number)) for number in range(1, len(shares) + 1)]
        final = outcome.last if outcome.complete else None
        rows.append([*cells, _number(final), "complete" if outcome.complete else "pruned"])
    return markdown(headers, rows)


def comparison_table(systems: Sequence[System], baseline: str, measure: str, others: Sequence[str]) -> str:
    """One row per system: dev and test as mean ± spread over seeds; the difference to the baseline with its p."""
    compared = against(systems, baseline, "test", measure)
    headers = ["system", f"dev {measure}", f"test {measure}", *(f"test {name}" for name in others)]
    headers += [f"difference to {baseline}", "p (Holm)", "seeds", "pre-training s", "fine-tuning s"]
    rows = []
    for system in systems:
        row = compared.get(system.label)
        cells = [system.label, _spread(system, "dev", measure), _spread(system, "test", measure)]
        cells += [_number(system.mean("test", name)) for name in others]
        cells += [f"{row.difference:+.4f}" if row else "—", f"{row.p_corrected:.2g}" if row else "—"]
        cells += [str(len(system.evaluations["test"]))]
        cells += [_seconds(system.pretrain_seconds), _seconds(system.finetune_seconds)]
        rows.append(cells)
    return markdown(headers, rows)


def sentence(winner: System, floor: System, runner_up: tuple[str, Comparison] | None, measure: str) -> str:
    """What won, by how much, and whether that is above the noise; decided on dev."""
    row = against([winner, floor], floor.label, "dev", measure)[winner.label]
    if row.queries < FEW_QUERIES:
        return (
            f"{winner.label} had the highest dev {measure}, "
            f"but with only {row.queries} dev queries nothing can be decided."
        )
    verb = "won" if row.difference > 0 else f"was the best trial but stays behind {floor.label}"
    text = (
        f"{winner.label} {verb}: dev {measure} {row.mean:.4f}, {row.difference:+.4f} to {floor.label} "
        f"[95% interval {row.low:+.4f}, {row.high:+.4f}; paired t-test over {row.queries} queries and {row.seeds} "
        f"fine-tuning seeds, p = {row.p:.2g}], which is {'above' if row.p < 0.05 else 'within'} the noise."
    )
    if runner_up is not None:
        name, other = runner_up
        verdict = "is distinguishable" if other.p < 0.05 else "is not distinguishable"
        text += (
            f" The next best, {name}, {verdict} from it on dev (difference {other.difference:+.4f}, p = {other.p:.2g}, "
            f"smallest detectable difference {other.detectable:.4f})."
        )
    return text


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"


def _spread(system: System, split: str, measure: str) -> str:
    many = len(system.evaluations[split]) > 1
    return _number(system.mean(split, measure)) + (f" ± {system.spread(split, measure):.4f}" if many else "")


def _seconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.0f}"
