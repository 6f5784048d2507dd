"""Tables of evaluations, and the comparison of systems over seeds with which a sweep ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pyarrow as pa

from midmask.core.words import MISSING, number_cell
from midmask.evaluation.measures import DEFAULT
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import deviation
from midmask.evaluation.statistics.significance import Comparison, compare, sentence
from midmask.experiment.evaluations import with_averages
from midmask.experiment.notes import notes
from midmask.store.artifact import Artifact
from midmask.store.tables import read_table


@dataclass(frozen=True)
class System:
    """A row of the comparison: its evaluations by split, one per seed."""

    label: str
    evaluations: dict[str, list[Artifact]]

    def values(self, split: str, measure: str) -> tuple[float, ...]:
        return tuple(artifact.result["measures"][measure] for artifact in self.evaluations[split])


def per_query(artifact: Artifact) -> pa.Table:
    """An evaluation's values: query_id, measure, value."""
    name = f"{artifact.result['corpus']}.{artifact.result['split']}.parquet"
    return read_table(artifact.place / "per_query" / name)


def against(systems: Sequence[System], baseline: str, split: str, measure: str) -> dict[str, Comparison]:
    """Every system against the baseline: paired t-test over queries, seeds averaged first, Holm-corrected."""
    tables = {system.label: [per_query(artifact) for artifact in system.evaluations[split]] for system in systems}
    return {row.system: row for row in compare(tables, baseline=baseline, measure=measure)}


def evaluation_sentence(corpus: str, name: str, done: Artifact, bm25: Artifact, trained: bool) -> str:
    """A system against BM25 on the same queries, by the first of the usual measures that the evaluations have.

    Args:
        name: of the system. trained: whether it was trained here, once.
    """
    measure = usual_measure(done.result["measures"])
    tested = compare({name: per_query(done), "BM25": per_query(bm25)}, baseline="BM25", measure=measure)
    verdict = sentence(tested[0], f"{corpus} {done.result['split']}")
    return f"{verdict} It was trained once: what another seed would change is not known." if trained else verdict


def measured_sentence(place: str, name: str, done: Artifact) -> str:
    """The first of the usual measures that a system's evaluation has."""
    measures = done.result["measures"]
    measure = usual_measure(measures)
    return f"{name} has {measure} {measures[measure]:.4f} on {place} ({done.result['queries']:,} queries)."


def run_files_sentence(place: str, done: Mapping[str, Artifact]) -> str:
    """The best of the measured run files, by the first of the usual measures that the evaluations have.

    Args:
        done: name of a system -> its evaluation; at least one.
    """
    if len(done) == 1:
        return measured_sentence(place, *next(iter(done.items())))
    values = {name: artifact.result["measures"] for name, artifact in done.items()}
    measure = usual_measure(next(iter(values.values())))
    name = max(values, key=lambda system: values[system][measure])
    value = f"{values[name][measure]:.4f} on {place} ({done[name].result['queries']:,} queries)"
    return f"Of {len(done)} run files, {name} has the highest {measure}: {value}. Differences are not tested here."


def usual_measure(measures: Mapping[str, float]) -> str:
    """The first of the usual ones that an evaluation has, else its own first."""
    return next((name for name in DEFAULT if name in measures), next(iter(measures)))


def results_table(evaluations: Mapping[str, Artifact], title: str = "evaluation", groups: Sequence[str] = ()) -> str:
    """One row per evaluation, one for each slice of its queries, and the average of each group of zero-shot collections
    that is named; a measure that a row lacks is a dash. Below it `notes`.
    """
    parts: dict[str, Mapping[str, Any]] = {}
    for key, done in evaluations.items():
        parts[key] = done.result
        parts |= {f"{key}, {name}": part for name, part in done.result.get("slices", {}).items()}
    rows = with_averages(groups, {name: part["measures"] for name, part in parts.items()})
    measures = list(dict.fromkeys(measure for values in rows.values() for measure in values))
    cells = [
        [
            name,
            str(parts[name]["queries"]) if name in parts else MISSING,
            *(number_cell(values.get(measure), ".4f") for measure in measures),
        ]
        for name, values in rows.items()
    ]
    return f"{markdown([title, 'queries', *measures], cells)}\n\n{notes(evaluations)}"


def comparison_table(systems: Sequence[System], baseline: str, measure: str, others: Sequence[str] = ()) -> str:
    """One row per system: dev and test as mean ± standard deviation over seeds, test by other measures, and the
    difference to the baseline on test with its p.
    """
    compared = against(systems, baseline, "test", measure)
    headers = ["system", f"dev {measure}", f"test {measure}", *(f"test {name}" for name in others)]
    headers += [f"difference to {baseline}", "p (Holm)"]
    rows = []
    for system in systems:
        row = compared.get(system.label)
        cells = [system.label, _spread(system, "dev", measure), _spread(system, "test", measure)]
        cells += [f"{fmean(system.values('test', name)):.4f}" for name in others]
        cells += [f"{row.difference:+.4f}" if row else MISSING, f"{row.p_corrected:.2g}" if row else MISSING]
        rows.append(cells)
    return markdown(headers, rows)


def _spread(system: System, split: str, measure: str) -> str:
    values = system.values(split, measure)
    return f"{fmean(values):.4f}" + (f" ± {deviation(values):.4f}" if len(values) > 1 else "")
