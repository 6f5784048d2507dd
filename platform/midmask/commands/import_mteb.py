"""Puts results of MTEB onto the leaderboard, a row for each model, and ranks the models over the tasks they share.

PLACE is a result file, or a folder with such files at any depth, as mteb's own cache: results/MODEL/REVISION/TASK.json.
Tasks of another kind than retrieval are counted and left out. What was imported before is not imported again.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_tracking_flag
from midmask.app.job import INSIDE, home


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("places", nargs="+", metavar="PLACE", help="result file or folder")
    add_tracking_flag(parser)


def work(flags: Namespace) -> None:
    """
    Raises:
        UserError: for a place that is not there, a damaged file, or one of another layout; nothing is imported then.
    """
    from midmask.app.mteb_rows import rank_models, read_models, track_models
    from midmask.app.mteb_text import import_sentence, rank_table
    from midmask.exchange.mteb_files import result_files
    from midmask.tracking import Tracker, resolve_tracking_uri

    models, others = read_models(result_files([Path(place).expanduser() for place in flags.places]))
    here = home(Path.cwd() / INSIDE)
    uri = resolve_tracking_uri(flags.tracking_uri, here)
    with Tracker(uri, here) as tracker:
        written = track_models(models, tracker)
    print(import_sentence(models, written, others))
    print(f"\n{rank_table(rank_models(models))}\n\nmidmask leaderboard --tracking-uri {uri}")
