"""Writes evaluated systems as MTEB's result files: FOLDER/MODEL/REVISION/TASK.json.

SYSTEM is what `midmask compare` takes: a name on the leaderboard or parts of it, a run, a model folder, a run file.
Beside MTEB's scores each file has the system's rank among those that are exported, and the ranks that the tests allow.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_tracking_flag, same_store
from midmask.app.job import INSIDE, home
from midmask.exchange.mteb_files import LANGUAGE


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="one or more")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the files are written")
    parser.add_argument("--on", metavar="CORPUS/SPLIT", help="whose queries, as squad/test; default: what all have")
    parser.add_argument("--task", metavar="NAME", help="what MTEB calls the collection; default: its name here")
    parser.add_argument("--language", default=LANGUAGE, metavar="CODE", help=f"of the collection; default: {LANGUAGE}")
    add_tracking_flag(parser)


def work(flags: Namespace) -> None:
    """
    Raises:
        UserError: as `select_systems` and `write_results`, for a run without values per query, or if the store does not
            answer.
    """
    from midmask.evaluation.mteb_results import MtebTask, SystemSample, write_results
    from midmask.identity import fingerprint
    from midmask.leaderboard.comparison import values_of
    from midmask.leaderboard.per_query import PerQueryFiles
    from midmask.leaderboard.selection import select_systems
    from midmask.leaderboard.snapshot_file import cache_folder
    from midmask.leaderboard.watch import look_once
    from midmask.tracking import resolve_tracking_uri

    uri = resolve_tracking_uri(flags.tracking_uri, home(Path.cwd() / INSIDE))
    place, systems = select_systems(flags.systems, look_once(uri), flags.on, store=same_store(flags))
    per_query = PerQueryFiles(uri, cache_folder() / "artifacts")
    measured = {
        label: SystemSample(
            [values_of(row, per_query) for row in system.rows[place]],
            fingerprint([row.fingerprint for row in system.rows[place]]),
        )
        for label, system in systems.items()
    }
    task = MtebTask(flags.task or place.corpus, place.split, place.collection, flags.language)
    for label, file in write_results(measured, task, Path(flags.out).expanduser()).items():
        print(f"{label}: {file}")
