"""Compares middle trainings under the same conditions: systems × collections × representations × settings × seeds.

A preset says what is compared: `demo`, or the tables of a paper. With several --corpus, all systems are fine-tuned and
evaluated on each of them, and share the middle trainings that read --pretrain-on. Interrupted, it goes on when
submitted again.
"""

from argparse import ArgumentParser, Namespace

from midmask.app.flags import add_zero_shot_flag
from midmask.app.job import Options
from midmask.errors import UserError


def add_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(several_corpora=True)
    parser.add_argument("--preset", default="demo", metavar="NAME", help="demo (default), collections, or a paper's")
    parser.add_argument(
        "--systems",
        metavar="NAMES",
        help="recipes, divided by commas, or all; also released:RECIPE=FOLDER, a published model folder that is a "
        "paper's system and stands in its tables; default: the preset's",
    )
    parser.add_argument("--seeds", metavar="NUMBERS", help="fine-tuning seeds, divided by commas")
    parser.add_argument("--representations", metavar="NAMES", help="dense, splade, lexical, hybrid, divided by commas")
    parser.add_argument("--settings", metavar="NAMES", help="fine-tunings of the preset, by name; default: all")
    parser.add_argument("--collections", metavar="NAMES", help="of the preset, for middle training; default: all")
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder of the report; default: benchmarks/PRESET in the project"
    )
    parser.add_argument(
        "--records",
        metavar="FOLDER",
        help="writes a small file for each measured cell; cells whose file is there are not measured again, so a "
        "benchmark can go on where its store is not",
    )
    add_zero_shot_flag(parser)


def work(options: Options, flags: Namespace) -> None:
    """Lays out what the flags ask for, runs what is missing, prints the report.

    Raises:
        UserError: for a benchmark that cannot be laid out, or cells that could not be measured.
    """
    from midmask.app.cost import tell_cost
    from midmask.app.ending import ending, model_product
    from midmask.artifact import Place
    from midmask.benchmark.best import best_of
    from midmask.benchmark.job import Job, describe, preset_with_flags, report_folder, with_records
    from midmask.benchmark.layout import group_by_reason, lay_out
    from midmask.experiment.needed_splits import refuse_missing_splits

    wanted = preset_with_flags(options, flags)
    records = Place.named(flags.records) if flags.records else None
    layout = with_records(lay_out(wanted), records)
    for line in group_by_reason(layout.left_out):
        print(f"left out {line.removeprefix('- ')}")
    job = Job(layout, options, report_folder(options, flags, wanted), records)
    refuse_missing_splits(job.left())
    if options.dry_run:
        print(describe(job))
        tell_cost(job.left(), options, side_by_side=True)
        return
    from midmask.benchmark.run import run_benchmark  # here, so that a dry run waits for neither Ray nor MLflow
    from midmask_papers.report import report_of

    text, failed = run_benchmark(job, report_of)
    sentence, model = best_of(layout, job.storage)
    products = [] if model is None else [model_product(model)]
    print(ending(options, sentence, [text], *products, further={"report": str(job.out)}))
    if failed:
        reasons = "; ".join(f"{cell}: {reason}" for cell, reason in list(failed.items())[:3])
        raise UserError(f"{len(failed)} of {len(layout.cells)} cells were not measured ({reasons}); the log says more")
