"""Commands that train or search many times and hold the results against each other: sweeps, benchmarks, choices."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_sweep_flags, add_zero_shot_flag
from midmask.app.job import Options
from midmask.commands import program
from midmask.errors import UserError


def _sweep_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--space", type=Path, required=True, metavar="FILE", help="YAML file of the search space")
    add_sweep_flags(parser)


@program(_sweep_flags)
def sweep(options: Options, flags: Namespace) -> None:
    """Runs the sweep of a search space: `--space search_spaces/mask_ratio.yaml`, or a file of your own.

    Examples:
      midmask sweep --space search_spaces/mask_ratio.yaml --dry-run
      midmask sweep --space search_spaces/mask_ratio.yaml --corpus beir:data/squad --search tpe --trials 30
    """
    from midmask.sweep.job import sweep

    sweep(options, flags, flags.space)


@program(add_sweep_flags)
def demo(options: Options, flags: Namespace) -> None:
    """A small sweep of RetroMAE's mask ratios on the built-in corpus, from wiki-mini, a general language model.

    The best ratio is held against no middle training, MLM and BM25 on test. About five minutes on two cores.

    Examples:
      midmask demo
      midmask demo --set pretrain.steps=400
    """
    from midmask.sweep.job import sweep

    sweep(options, flags, Path(__file__).parents[1] / "sweep" / "demo.yaml")


def _benchmark_middle_training_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--preset", default="demo", metavar="NAME", help="demo (default), collections, or a paper's")
    parser.add_argument(
        "--systems",
        metavar="NAMES",
        help="recipes, divided by commas, or all; a published model folder is "
        "'none[backbone.name=FOLDER,tokens.tokenizer=FOLDER]'; default: the preset's",
    )
    parser.add_argument("--seeds", metavar="NUMBERS", help="fine-tuning seeds, divided by commas")
    parser.add_argument(
        "--pretrain-seeds",
        metavar="NUMBERS",
        help="seeds of the middle training, each with as many fine-tunings of its own as there are --seeds; intervals "
        "then count the spread of both",
    )
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
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="trains nothing: only prints how many of the queries and passages that are evaluated would be read by the "
        "middle trainings and the fine-tunings",
    )
    add_zero_shot_flag(parser)


@program(_benchmark_middle_training_flags)
def benchmark_middle_training(options: Options, flags: Namespace) -> None:
    """Compares middle trainings under the same conditions: systems × collections × representations × settings × seeds.

    A preset says what is compared: `demo`, or the tables of a paper. Interrupted, it goes on when submitted again.

    Examples:
      midmask benchmark --corpus beir:FOLDER --systems none,mlm,retromae,dupmae --dry-run
      midmask benchmark --corpus beir:FOLDER --pretrain-on texts:FOLDER --overlap
      midmask benchmark --preset canonical --pretrain-seeds 0,1,2
    """
    from midmask.app.driver import ending, tell_cost
    from midmask.benchmark.job import Job, best_of, describe, preset_with_flags, with_records
    from midmask.benchmark.layout import group_by_reason, lay_out
    from midmask.core.process import VERBOSE, is_on
    from midmask.experiment.evaluations import refuse_missing_splits
    from midmask.store.place import Place

    preset = preset_with_flags(options, flags)
    records = Place.named(flags.records) if flags.records else None
    layout = with_records(lay_out(preset), records)
    for line in group_by_reason(layout.left_out):
        print(f"left out {line.removeprefix('- ')}")
    out = Path(flags.out).expanduser().absolute() if flags.out else options.home / "benchmarks" / preset.name
    job = Job(layout, options, out, records)
    refuse_missing_splits(job.left())
    if options.dry_run:
        print(describe(job))
        tell_cost(job.left(), options, side_by_side=True)
        return
    if flags.overlap:
        from midmask.benchmark.overlap import compute_overlaps

        print(compute_overlaps(layout, job.storage))
        return
    from midmask.benchmark.run import run_benchmark  # here, so that a dry run waits for neither Ray nor MLflow

    text, failed = run_benchmark(job)
    sentence, best, model = best_of(layout, job.storage)
    made = {} if model is None else {"model": str(model)}
    tables = [text if is_on(VERBOSE) else best]
    print(ending(options, sentence, tables, made | {"report": f"{job.out}/report.md"}))
    if failed:
        reasons = "; ".join(f"{cell}: {reason}" for cell, reason in list(failed.items())[:3])
        raise UserError(f"{len(failed)} of {len(layout.cells)} cells were not measured ({reasons}); the log says more")


def _choose_middle_training_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(sections=("queries.",))
    parser.add_argument("--budget", default="30m", metavar="TIME", help="by the clock: 30m (default), 8h, 1h30m")
    parser.add_argument("--queries", metavar="FILE", help='queries of passages, mixed in: lines {"doc_id", "queries"}')
    parser.add_argument("--systems", metavar="NAMES", help="recipes, divided by commas; default: seven of them")
    parser.add_argument("--representations", metavar="NAMES", help="of dense, splade, hybrid; default: all")
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder of the verdict; default: verdicts/CORPUS in the project"
    )
    parser.add_argument(
        "--reveal", action="store_true", help="then look at the corpus's own judgements: how right was the verdict?"
    )


@program(_choose_middle_training_flags)
def choose_middle_training(options: Options, flags: Namespace) -> None:
    """From documents without labelled queries to a verdict and a model: which middle training, and what it gains.

    Makes queries from the documents, trains the candidates in rounds within a budget, and says which one to take, how
    sure that is and what it costs. Interrupted, it goes on when submitted again, with what is left of the budget.

    Examples:
      midmask choose --corpus docs:FOLDER --budget 30m
      midmask choose --corpus beir:FOLDER --queries written.jsonl --budget 8h
    """
    from midmask.choice.job import choose_job

    choose_job(options, flags)
