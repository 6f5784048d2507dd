"""Puts results of MTEB onto the leaderboard, a row for each model, and ranks the models over the tasks they share.

PLACE is a result file, or a folder with such files at any depth, as mteb's own cache: results/MODEL/REVISION/TASK.json.
Tasks of another kind than retrieval are counted and left out. What was imported before is not imported again.
"""

import shlex
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
    from midmask.app.mteb_rows import import_results, rank_models
    from midmask.app.mteb_text import import_sentence, rank_table
    from midmask.redaction import redacted
    from midmask.tracking import resolve_tracking_uri

    here = home(Path.cwd() / INSIDE)
    uri = resolve_tracking_uri(flags.tracking_uri, here)
    found = import_results([Path(place) for place in flags.places], uri, here)
    print(import_sentence(found))
    print(
        f"\n{rank_table(rank_models(found.models))}\n\nmidmask leaderboard --tracking-uri {shlex.quote(redacted(uri))}"
    )
