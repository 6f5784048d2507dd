"""The job of a sweep: reads the space and the flags, prints the plan or the report."""

import json
import logging
import shlex
from argparse import Namespace
from pathlib import Path

from midmask.app.driver import ending, scale_notes, tell_cost
from midmask.app.job import Options
from midmask.core.config import flatten, override
from midmask.core.process import shell_command
from midmask.corpora.config import CorpusConfig
from midmask.experiment.evaluations import refuse_missing_splits
from midmask.store.place import Place
from midmask.sweep.plan import describe, expected_steps, sweep_for
from midmask.sweep.space import load_space

log = logging.getLogger(__name__)


def sweep(options: Options, flags: Namespace, path: Path) -> None:
    """The whole of a sweep job: reads the space, applies the flags, runs, prints."""
    space = load_space(path)
    changes = {name: getattr(flags, name) for name in ("search", "trials") if getattr(flags, name) is not None}
    planned_sweep = sweep_for(options, override(space, changes))
    refuse_missing_splits(expected_steps(planned_sweep))
    if options.dry_run:
        print(describe(planned_sweep))
        tell_cost(expected_steps(planned_sweep), options, side_by_side=True)
        return
    for note in scale_notes(planned_sweep.recipe, options):
        log.warning("%s", note)
    from midmask.sweep.run import run_sweep  # here, so that a dry run waits for neither Ray nor MLflow

    report, model = run_sweep(planned_sweep)
    print(ending(options, report, (), {"model": model}, next_step=_search_command(model, planned_sweep.recipe.corpus)))


def _search_command(model: Place, corpus: CorpusConfig) -> str:
    """The command that searches the sweep's collection with a model; empty for a model that is not on this machine."""
    if not model.is_path:
        return ""
    usual = flatten(CorpusConfig(name=corpus.name))
    changed = {path: value for path, value in flatten(corpus).items() if value != usual[path]}
    fields = [f"--set=corpus.{path}={json.dumps(value)}" for path, value in changed.items()]
    return f"{shell_command()} {shlex.join(['search', model.uri, f'--corpus={corpus.name}', *fields])}"
