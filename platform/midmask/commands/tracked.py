"""Commands over the tracked runs: `leaderboard` and `ui`, which open pages on loopback; `compare` and `export-mteb`."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_tracking_flag
from midmask.app.job import home
from midmask.commands import program
from midmask.errors import UserError
from midmask.exchange.mteb_files import LANGUAGE
from midmask.pages import serving_command
from midmask.tracking.names import is_database, resolve_tracking_uri, ui_address


def _leaderboard_flags(parser: ArgumentParser) -> None:
    add_tracking_flag(parser)
    parser.add_argument(
        "--verdict", metavar="FOLDER", help="also search with the systems of a verdict, and judge what they find"
    )
    parser.add_argument("--port", type=int, default=8501, help="default: 8501")


@program(_leaderboard_flags)
def leaderboard(flags: Namespace) -> None:
    """Opens the leaderboard over the tracked runs, on loopback; with --verdict, its page Search asks that verdict's
    systems.

    Examples:
      midmask leaderboard
      midmask leaderboard --verdict verdicts/NAME
    """
    more: list[str] = []
    if flags.verdict is not None:
        verdict = Path(flags.verdict).expanduser().absolute()
        if not (verdict / "verdict.json").is_file():
            raise UserError(f"--verdict {verdict}: it has no verdict.json; name the folder that `midmask choose` wrote")
        more = ["--verdict", str(verdict)]
    os.environ["MLFLOW_TRACKING_URI"] = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd()))
    os.execv(sys.executable, serving_command(flags.port, *more))


def _ui_flags(parser: ArgumentParser) -> None:
    add_tracking_flag(parser)
    parser.add_argument("--port", type=int, default=5000, help="default: 5000")


@program(_ui_flags)
def ui(flags: Namespace) -> None:
    """Prints the address of the tracked runs in MLflow's own pages, and serves these on loopback unless the store is
    a server, which has them.

    Examples:
      midmask ui
      midmask ui --port 5001
    """
    from midmask.tracking.store import explained, save_view

    uri = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd()))
    pages = f"http://127.0.0.1:{flags.port}" if is_database(uri) else ui_address(uri)
    with explained(uri):  # makes the store: the server's several processes would ruin a fresh file
        print(pages + save_view(uri, home(Path.cwd())), flush=True)
    if is_database(uri):
        os.environ["MLFLOW_BACKEND_STORE_URI"] = uri  # not as a flag, which others could read in `ps`
        command = [sys.executable, "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(flags.port)]
        os.execv(sys.executable, command)


def _compare_flags(parser: ArgumentParser) -> None:
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


@program(_compare_flags)
def compare(flags: Namespace) -> None:
    """Compares systems that were evaluated, on the same queries: which is better, by how much, and whether that is
    chance.

    RUN is a system's name as the leaderboard has it, or parts of it that no other has (`bm25`); or the id of a run, or
    its beginning. A model folder that was evaluated is called as the folder, a TREC run file that
    `midmask evaluate-run` has measured as the file. The first RUN is what the others are held against.

    Examples:
      midmask compare minilm bm25
      midmask compare 'retromae · dense' 'none · dense' --on squad/test --markdown
    """
    if len(flags.runs) < 2:
        raise UserError(f"compare {flags.runs[0]}: give two systems or more, as midmask compare {flags.runs[0]} bm25")
    if flags.queries < 0:
        raise UserError(f"--queries {flags.queries}: give a number of queries, or 0 for none")
    from midmask.evaluation.rendering import markdown_text
    from midmask.leaderboard.comparison import as_csv, as_text, compare_systems
    from midmask.leaderboard.rows import place_names
    from midmask.leaderboard.selection import select_systems
    from midmask.leaderboard.store_view import look

    view = look(resolve_tracking_uri(flags.tracking_uri, home(Path.cwd())))
    place, systems = select_systems(flags.runs, view, flags.on)
    comparison = compare_systems(
        {label: system.rows[place] for label, system in systems.items()},
        place_names([row.place for row in view.rows])[place],
        view.per_query,
        measures=flags.measures,
        queries=flags.queries,
    )
    print(as_csv(comparison) if flags.csv else as_text(comparison, markdown_text if flags.markdown else str))


def _export_mteb_flags(parser: ArgumentParser) -> None:
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="one or more")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the files are written")
    parser.add_argument("--on", metavar="CORPUS/SPLIT", help="whose queries, as squad/test; default: what all have")
    parser.add_argument("--task", metavar="NAME", help="what MTEB calls the collection; default: its name here")
    parser.add_argument("--language", default=LANGUAGE, metavar="CODE", help=f"of the collection; default: {LANGUAGE}")
    add_tracking_flag(parser)


@program(_export_mteb_flags)
def export_mteb(flags: Namespace) -> None:
    """Writes evaluated systems as MTEB's result files: FOLDER/MODEL/REVISION/TASK.json.

    SYSTEM is what `midmask compare` takes: a name on the leaderboard or parts of it, or a run.
    A system with several seeds has their mean.

    Examples:
      midmask export-mteb minilm --out results
      midmask export-mteb retromae --out results --on squad/test --task SQuAD
    """
    from midmask.core.config import fingerprint
    from midmask.evaluation.measures import aggregate_seeds
    from midmask.exchange.mteb_files import MtebResult, write_results
    from midmask.leaderboard.comparison import values_of
    from midmask.leaderboard.selection import select_systems
    from midmask.leaderboard.store_view import look

    view = look(resolve_tracking_uri(flags.tracking_uri, home(Path.cwd())))
    place, systems = select_systems(flags.systems, view, flags.on)
    results = [
        MtebResult(
            label,
            fingerprint([row.tag("fingerprint") for row in system.rows[place]]),
            flags.task or place.corpus,
            place.collection,
            place.split,
            aggregate_seeds([values_of(row, view.per_query) for row in system.rows[place]]),
            flags.language,
            len(system.rows[place]),
        )
        for label, system in systems.items()
    ]
    for label, file in write_results(results, Path(flags.out).expanduser()).items():
        print(f"{label}: {file}")
