"""Compares systems that were evaluated, on the same queries: which is better, by how much, and whether that is chance.

RUN is a system's name as the leaderboard has it, or parts of it that no other has (`bm25`); the id of a run, or its
beginning; a model folder that was evaluated, or minilm; or a TREC run file that `midmask evaluate-run` has measured.
The first RUN is what the others are held against.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_tracking_flag, same_store
from midmask.app.job import INSIDE, home
from midmask.errors import UserError


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="two or more systems")
    parser.add_argument("--on", metavar="CORPUS/SPLIT", help="whose queries, as squad/test; default: what all have")
    parser.add_argument(
        "--measure",
        action="append",
        default=[],
        dest="measures",
        metavar="NAME",
        help="such as nDCG@10; may be given again, the first decides; default: all that the systems share",
    )
    parser.add_argument(
        "--queries", type=int, default=5, metavar="N", help="largest gains and losses that are listed; default: 5"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    form.add_argument("--csv", action="store_true", help="print the tables alone, as CSV with numbers in full")
    add_tracking_flag(parser)


def work(flags: Namespace) -> None:
    """Reads the tracked runs as the leaderboard's pages do, and prints the comparison.

    Raises:
        UserError: as `select_systems` and `compare_systems`, or if the store does not answer.
    """
    if len(flags.runs) < 2:
        raise UserError(f"compare {flags.runs[0]}: give two systems or more, as midmask compare {flags.runs[0]} bm25")
    if flags.queries < 0:
        raise UserError(f"--queries {flags.queries}: give a number of queries, or 0 for none")
    from midmask.leaderboard.comparison import compare_systems
    from midmask.leaderboard.comparison_text import as_csv, as_markdown, as_text
    from midmask.leaderboard.per_query import PerQueryFiles
    from midmask.leaderboard.rows import place_names
    from midmask.leaderboard.selection import select_systems
    from midmask.leaderboard.snapshot_file import cache_folder
    from midmask.leaderboard.watch import look_once
    from midmask.tracking import resolve_tracking_uri

    uri = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd() / INSIDE))
    view = look_once(uri)
    place, systems = select_systems(flags.runs, view, flags.on, store=same_store(flags))
    found = compare_systems(
        {label: system.rows[place] for label, system in systems.items()},
        place_names([row.place for row in view.rows])[place],
        PerQueryFiles(uri, cache_folder() / "artifacts"),
        view.runs,
        measures=flags.measures,
        queries=flags.queries,
    )
    print((as_csv if flags.csv else as_markdown if flags.markdown else as_text)(found))
