"""Measures ranked lists of any tool, from TREC run files, and puts them onto the leaderboard.

Each FILE (plain or gzip'd, lines `query Q0 document rank score tag`) is a system of its own, measured as it is by
trec_eval's definitions. Documents of equal score rank as in every other evaluation, unless --ties says otherwise.
"""

import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import same_store
from midmask.app.job import Options
from midmask.errors import UserError


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="TREC run file, plain or gzip'd")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        dest="names",
        metavar="NAME",
        help="of a file's system, once for each FILE; default: the tag in the file, or the file's name",
    )
    parser.add_argument("--split", help="split whose queries are measured; default: dev, or test where there is no dev")
    parser.add_argument(
        "--ties",
        choices=("midmask", "trec_eval"),
        default="midmask",
        help="order of documents of equal score: by id ascending, as for all systems (midmask, the default), or by id "
        "descending (trec_eval)",
    )
    parser.add_argument(
        "--leave-out-copies",
        action="store_true",
        help="remove passages that are the query itself (corpus.self_matches), as searches here do; default: the lists "
        "are measured as they are",
    )


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import choose_split, recipe_for, run_steps
    from midmask.experiment.run_files import collection_step, run_file_evaluation, run_names
    from midmask.identity import override

    _refuse_other_fields(options)
    files = [Path(file).expanduser().absolute() for file in flags.files]
    names = run_names(files, flags.names)
    recipe, split = choose_split(recipe_for(options, default="none"), flags.split, options, trains=False)
    recipe = override(recipe, {"evaluation.split": split})
    corpus = collection_step(recipe.corpus)
    evaluations = {
        name: run_file_evaluation(file, corpus, recipe.evaluation, flags.ties, leave_out_copies=flags.leave_out_copies)
        for name, file in zip(names, files, strict=True)
    }
    if options.dry_run:
        run_steps(options, recipe, evaluations)
        return
    from midmask.app.ending import ending  # here, so that a dry run waits for neither Ray nor MLflow
    from midmask.app.run_files import track_run_files
    from midmask.experiment.report import evaluations_table, run_files_sentence

    done = track_run_files(options, recipe, evaluations)
    place = f"{recipe.corpus.short_name} {split}"
    further = (
        {"test the differences": f"midmask compare {shlex.join(done)} {same_store(flags)}".strip()}
        if len(done) > 1
        else None
    )
    print(ending(options, run_files_sentence(place, done), [evaluations_table(place, done)], further=further))


def _refuse_other_fields(options: Options) -> None:
    """Raises UserError for a field that changes nothing about a run file."""
    from midmask.experiment.run_files import FIELDS

    known = [f"evaluation.{name}" for name in FIELDS if name != "split"]
    for path in options.changes:
        if path not in known and not path.startswith("corpus."):
            raise UserError(
                f"--set {path}: it changes nothing about a run file; only {', '.join(known)} and corpus.* do"
            )
