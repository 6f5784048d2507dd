"""Compares middle trainings under the same conditions: systems × collections × representations × settings × seeds.

A preset says what is compared: `demo`, or the tables of a paper. With several --corpus, all systems are fine-tuned and
evaluated on each of them, and share the middle trainings that read --pretrain-on. Interrupted, it goes on when
submitted again.
"""

from argparse import ArgumentParser, Namespace

from midmask.app.flags import add_zero_shot_flag
from midmask.app.job import Options


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
    from midmask.benchmark.job import benchmark
    from midmask_papers.report import report_of

    benchmark(options, flags, report_of)
