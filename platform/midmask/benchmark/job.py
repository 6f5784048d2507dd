"""A benchmark as a command line asks for it: the preset with its flags, its records, its plan in words, its winner."""

from argparse import Namespace
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import ValidationError

from midmask.app.job import Options, resolve_corpus
from midmask.benchmark.design import NONE, Benchmark, names_in, variant
from midmask.benchmark.layout import BenchmarkCell, Layout
from midmask.benchmark.presets import PRESETS, Given
from midmask.benchmark.records import collect, describe_records, known_records, read_records
from midmask.benchmark.results import SystemKey
from midmask.core.config import as_user_error, fingerprint, flatten
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown
from midmask.experiment.graph import Graph, Step, model_step
from midmask.recipes import RECIPES
from midmask.recipes.build import has_sizes
from midmask.store.place import Place


@dataclass(frozen=True)
class Job:
    """A benchmark with its cells and the flags of a command line."""

    layout: Layout
    options: Options
    out: Path
    records: Place | None = None  # folder of its cells' records

    @property
    def storage(self) -> Place:
        return Place(self.options.storage)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of everything that the results depend on."""
        names = {cell.name: [step.fingerprint for step in cell.evaluations.values()] for cell in self.layout.cells}
        return fingerprint({"benchmark": self.layout.benchmark.name, "cells": names})

    def left(self) -> list[Step]:
        """Unfinished evaluations and overlaps of the cells without a record."""
        targets = (step for cell in self.unrecorded() for step in cell.targets)
        return [step for step in targets if not step.is_finished(self.storage)]

    def unrecorded(self) -> list[BenchmarkCell]:
        return [cell for cell in self.layout.cells if cell.name not in self.layout.recorded]


def with_records(layout: Layout, folder: Place | None) -> Layout:
    """The layout with what the folder's records say of its cells, and a note of it among the conditions."""
    if folder is None:
        return layout
    known = known_records(layout.cells, read_records(folder))
    notes = (*layout.benchmark.notes, *describe_records(known))
    benchmark = layout.benchmark.model_copy(update={"notes": notes})
    results = {name: record.results for name, record in known.items()}
    overlaps = {name: record.measurement.overlaps for name, record in known.items()}
    return replace(layout, benchmark=benchmark, recorded=results, recorded_overlaps=overlaps)


def preset_with_flags(options: Options, flags: Namespace) -> Benchmark:
    """The preset with the flags applied.

    Raises:
        UserError: for an unknown preset, system, setting or representation.
    """
    if options.recipe or options.protocol:
        raise UserError("a benchmark takes --systems and --settings; --recipe and --protocol are for one system")
    read = tuple(resolve_corpus(name, options.home) for name in options.pretrain_on)
    preset = PRESETS[flags.preset](Given(options.scale, options.corpus, read))
    changes = _narrow(preset, flags)
    if flags.zero_shot:
        changes["zero_shot"] = [resolve_corpus(name, options.home) for name in flags.zero_shot]
    changes["changes"] = {**preset.changes, **options.set_fields}
    changes["notes"] = [*preset.notes, *_exceptions(preset, changes, options)]
    if options.seed is not None:
        if changes.get("pretrain_seeds", preset.pretrain_seeds):
            raise UserError(
                f"--seed {options.seed}: --pretrain-seeds names the seeds of the middle training; leave one out"
            )
        changes["changes"]["pretrain.seed"] = options.seed
    try:
        return Benchmark.model_validate({**preset.model_dump(), **changes})
    except ValidationError as error:
        raise as_user_error(error, "") from None


def _exceptions(preset: Benchmark, changes: dict[str, Any], options: Options) -> list[str]:
    """What of a benchmark is not as its conditions say: fields that are set, systems without published sizes."""
    exceptions = []
    if options.set_fields:
        changed = ", ".join(f"{path} = {value}" for path, value in options.set_fields.items())
        exceptions.append(f"But by --set: {changed}.")
    names = {variant(system)[0]: None for system in changes.get("systems", preset.systems)}
    unpublished = [name for name in names if name in set(RECIPES) and not has_sizes(name)]
    if options.scale == "published" and unpublished:
        exceptions.append(
            f"No sizes are known of {', '.join(unpublished)}: their middle training has the steps of a demo."
        )
    return exceptions


def _narrow(preset: Benchmark, flags: Namespace) -> dict[str, Any]:
    """The preset's fields of which the flags name some values, and what is said of the conditions that stay. Systems
    that the preset does not have are run under all of them.
    """
    changes: dict[str, Any] = {}
    if flags.systems:
        everything = tuple(RECIPES) if flags.systems == "all" else tuple(names_in(flags.systems))
        changes["systems"] = everything if "bm25" in everything else (*everything, "bm25")
    for field in ("seeds", "pretrain_seeds", "representations"):
        if text := getattr(flags, field):
            changes[field] = names_in(text)
    left_out: set[str] = set()
    for field, known in (("settings", preset.settings), ("collections", preset.collections)):
        if text := getattr(flags, field):
            names = _choose(field, text, known)
            changes[field] = {name: known[name] for name in names}
            left_out |= known.keys() - {*names}
    new = [name for name in changes.get("systems", ()) if name not in preset.systems]
    changes["only"] = {name: (*systems, *new) for name, systems in preset.only.items() if name not in left_out}
    return changes


def _choose(flag: str, text: str, known: Collection[str]) -> list[str]:
    """Names of what a preset has; a UserError for another name."""
    names = names_in(text)
    if unknown := set(names) - set(known):
        raise UserError(f"--{flag} {', '.join(sorted(unknown))}: the preset has {', '.join(known)}")
    return names


def describe(job: Job) -> str:
    """What --dry-run prints: conditions, one cell in full, all cells, and the steps that are left of each kind."""
    benchmark = job.layout.benchmark
    cell = job.layout.cells[-1]
    lines = ["benchmark:", *(f"  {path} = {value}" for path, value in flatten(benchmark).items())]
    lines += ["", f"configuration of {cell.name}:"]
    lines += [f"  {path} = {value}" for path, value in flatten(cell.recipe).items()]
    lines += ["", f"{len(job.layout.cells)} cells:"]
    lines += [f"  {_state(job, cell):<8}  {cell.name}" for cell in job.layout.cells]
    graph = Graph.left_in(job.storage, job.left())
    left = Counter(step.name for step in graph.unfinished.values())
    total = Counter(step.name for step in job.layout.steps().values())
    lines += ["", "steps:"]
    lines += [f"  {name:<15} {total[name] - left[name]:>4} cached {left[name]:>4} to do" for name in total]
    return "\n".join(lines)


def _state(job: Job, cell: BenchmarkCell) -> str:
    if cell.name in job.layout.recorded:
        return "recorded"
    return "cached" if all(step.is_finished(job.storage) for step in cell.evaluations.values()) else "to do"


BEST = 10
"""Systems that are printed when a benchmark ends; its report has all of them."""


def best_of(layout: Layout, storage: Place) -> tuple[str, str, Place | None]:
    """A sentence on the best system by the benchmark's measure, on its corpus; a table of the best ones; and
    the folder of the best one's model with the first seed, None for BM25 and where results come from a record.
    """
    measure = layout.benchmark.measure
    first = layout.cells[0].main
    scores: dict[SystemKey, list[float]] = {}
    for result in collect(layout.cells, storage, layout.recorded).where(corpus=first[0], split=first[1]):
        if measure in result.measures:
            scores.setdefault(result.key, []).append(result.measures[measure])
    if not scores:
        return f"No cell was measured on {' '.join(first)}.", "", None
    ranked = sorted(scores, key=lambda key: mean(scores[key]), reverse=True)
    rows = [(_label(key), f"{mean(scores[key]):.4f}", str(len(scores[key]))) for key in ranked[:BEST]]
    table = markdown(["system", f"{' '.join(first)} {measure}", "seeds"], rows)
    best = ranked[0]
    cell = next(cell for cell in layout.cells if cell.key == best)
    seeds = f" ({len(scores[best])} seeds)" if len(scores[best]) > 1 else ""
    sentence = (
        f"By {measure} on {' '.join(first)}, the best of {len(scores)} systems is {_label(best)} with "
        f"{mean(scores[best]):.4f}{seeds}; the report says what can be told apart."
    )
    step = None if cell.name in layout.recorded else model_step(cell.evaluations[cell.main])
    return sentence, table, None if step is None else step.place(storage) / "model"


def _label(key: SystemKey) -> str:
    """The system, representation and setting of a key, without repetition: BM25 is its own representation."""
    parts = dict.fromkeys((key.system, *(part for part in (key.representation, key.setting) if part != NONE)))
    return " ".join(filter(None, parts))
