"""`midmask.evaluate_run`: the measures of another tool's ranked lists."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from midmask.api.catalogue import as_changes, check_reach, read_as
from midmask.api.corpus import Corpus
from midmask.api.run import Run
from midmask.api.scores import Scores, find_collection, find_split
from midmask.api.storage import compute, open_store, runner_in
from midmask.errors import UserError, unknown
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.run_files import FIELDS, collection_step, run_file_evaluation, run_names
from midmask.identity import override
from midmask.retrieve.ranked import TieRule


def evaluate_run(
    file: str | Path,
    corpus: Corpus | Run,
    *,
    name: str | None = None,
    split: str | None = None,
    measures: Sequence[str] = (),
    depth: int = 100,
    max_queries: int | None = None,
    ties: TieRule = "midmask",
    leave_out_copies: bool = False,
    settings: Mapping[str, object] | None = None,
    storage: str | Path | None = None,
    progress: bool = True,
) -> Scores:
    """Measures the ranked lists in a TREC run file as they are, by trec_eval's definitions.

    Args:
        file: plain or gzip'd, lines `query Q0 document rank score tag`. Scores decide the order; ranks are not read.
        corpus: with queries and judgements. Give a run of `midmask.train` for the very queries of that run.
        name: what tables call the system; none: the tag in the file, unless midmask wrote it, else the file's name.
        split, measures, depth, max_queries: as for `evaluate`.
        ties: order of documents of equal score: by id ascending as everywhere in midmask, or by id descending as
            trec_eval has it ("trec_eval").
        leave_out_copies: removes passages that are the query itself (`corpus.self_matches`), as `evaluate` does.
        settings: how the corpus is read and what is measured: dotted path -> value, of `corpus`, and of the fields that
            are arguments here. They win over the arguments.
        storage: as for `train`; where a run is given, its store is used.
        progress: prints to standard error what is computed.

    Raises:
        UserError: for a file that is not there or is no run file, a run of other queries or of another collection, an
            unknown split, measure or rule of ties.
    """
    if ties not in get_args(TieRule):
        raise unknown("ties", ties, get_args(TieRule))
    if isinstance(corpus, Run) and storage is not None:
        raise UserError(f"storage = {str(storage)!r}: a run is evaluated in its own store; leave storage out")
    path = Path(file).expanduser().absolute()
    (system,) = run_names([path], [name] if name else [])
    runner = corpus.runner if isinstance(corpus, Run) else runner_in(open_store(storage), ray=False, progress=progress)
    changes = as_changes(settings)
    check_reach(changes, ("corpus", *(f"evaluation.{name}" for name in FIELDS)), "a run file")
    where = read_as(find_collection(path, corpus, runner.storage), changes)
    asked = {"measures": tuple(measures), "depth": depth, "max_queries": max_queries, "split": find_split(where, split)}
    typed = {
        path.removeprefix("evaluation."): value for path, value in changes.items() if path.startswith("evaluation.")
    }
    config = override(EvaluateConfig(), asked | typed)
    step = run_file_evaluation(path, collection_step(where), config, ties, leave_out_copies=leave_out_copies)
    return Scores(system, compute(runner, step))
