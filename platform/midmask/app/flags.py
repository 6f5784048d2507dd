"""The flags that jobs share, and what is said of a wrong one. Imports nothing heavy, so --help answers at once."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from textwrap import fill
from typing import Any, NoReturn

from midmask.corpora.config import name_forms
from midmask.errors import UserError, unknown

AddFlags = Callable[[argparse.ArgumentParser], None]

ENVIRONMENT = """environment variables:
  MIDMASK_HOME          folder against which relative stores are resolved (default: the one that holds pyproject.toml)
  MIDMASK_STORAGE       as --storage
  MLFLOW_TRACKING_URI   as --tracking-uri
  MIDMASK_ALLOW_DOWNLOAD  1: as --allow-download
  MIDMASK_VERBOSE       1: as --verbose
  RAY_ADDRESS           host:port of the cluster to join (default: the one on this machine, else a local Ray is started)

Under `ray job submit`, flags need `--` before the job: ray job submit -- jobs/NAME.py --corpus beir:/data/squad"""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are user errors: one line, without the usage. Descriptions keep their lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}. See --help.")


def parse(
    arguments: Sequence[str], description: str | None, add_flags: AddFlags | None = None, prog: str | None = None
) -> argparse.Namespace:
    """The shared and the job's own flags.

    Args:
        prog: what was typed before the flags, for --help; none: the file that this process runs.

    Raises:
        UserError: for an unknown flag, naming the nearest one, or an impossible value.
    """
    parser = Parser(prog=prog, description=description, epilog=ENVIRONMENT)
    if add_flags is not None:
        add_flags(parser)
    add_shared_flags(parser, whole="--help-all" in arguments)
    names = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    for name in (argument.split("=")[0] for argument in arguments if argument.startswith("--")):
        if name not in names:  # argparse would first complain of required flags, of which this may be one, mistyped
            raise unknown("flag", name, names)
    flags, rest = parser.parse_known_intermixed_args(arguments)  # files may stand before or after flags
    if rest:
        raise unknown("argument", rest[0], names)
    corpora = vars(flags).pop("corpora")
    if len(corpora) > 1:
        raise UserError(f"--corpus is given {len(corpora)} times; a job reads one collection: --corpus {corpora[-1]}")
    flags.corpus = next(iter(corpora), None)
    return flags


def _natural(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


_positive = partial(_natural, least=1)

USUAL = ("corpora", "recipe", "changes", "dry_run")
"""The shared flags that --help shows."""


def add_shared_flags(parser: argparse.ArgumentParser, *, whole: bool = True) -> None:
    """Adds the flags that all jobs share; unless `whole`, --help shows the usual ones, and --help-all all of them."""
    parser.add_argument("--help-all", action="help", help="all flags, and environment variables")
    shared = parser.add_argument_group("flags that all jobs share" if whole else "usual flags of all jobs")
    _add_collection_flags(shared)
    _add_recipe_flags(shared)
    add_storage_flag(shared)
    add_tracking_flag(shared)
    _add_worker_flags(shared)
    shared.add_argument(
        "--allow-download",
        action="store_true",
        help="fetch a named model of the Hugging Face hub, or collection of ir_datasets, that this machine lacks",
    )
    shared.add_argument(
        "--verbose", action="store_true", help="show every line of the log, which lies in logs/ of the storage"
    )
    shared.add_argument(
        "--dry-run", action="store_true", help="print configuration, steps, and what they will cost, and stop"
    )
    shared.add_argument(
        "--on",
        metavar="SHAPE",
        help="with --dry-run: the cluster, such as 8xH100 or 2xcpu; default: this machine",
    )
    if not whole:
        _hide(parser, [action for action in shared._group_actions if action.dest not in USUAL])


def _hide(parser: argparse.ArgumentParser, actions: Sequence[argparse.Action]) -> None:
    """Leaves these out of --help but for their names, which stand at its end."""
    for action in actions:
        action.help = argparse.SUPPRESS
    names = " ".join(action.option_strings[0] for action in actions)
    parser.epilog = fill(f"also, explained by --help-all: {names}", break_on_hyphens=False)


def _add_collection_flags(shared: argparse._ActionsContainer) -> None:
    shared.add_argument(
        "--corpus",
        dest="corpora",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{name_forms()}; default: pydocs",
    )
    shared.add_argument(
        "--pretrain-on",
        action="append",
        default=[],
        metavar="NAME",
        help="collection for the middle training alone: FORMAT:PLACE; may be given again: all are read "
        "together; default: --corpus",
    )


def _add_recipe_flags(shared: argparse._ActionsContainer) -> None:
    shared.add_argument(
        "--recipe",
        metavar="NAME",
        help="whose configuration to take; or the recipe.json of a run, to make it again; default: the job's own",
    )
    shared.add_argument(
        "--protocol", metavar="NAME", help="fine-tuning, instead of the recipe's, such as dpr or dupmae"
    )
    shared.add_argument(
        "--scale",
        choices=("demo", "published"),
        default="demo",
        help="sizes of --protocol: minutes on CPUs (default), or those of the paper, with its middle training and "
        "BERT-base",
    )
    add_set_flag(shared, "the configuration, e.g. pretrain.steps=400")
    shared.add_argument("--seed", type=_natural, metavar="N", help="of everything random; default: the recipe's")


def _add_worker_flags(shared: argparse._ActionsContainer) -> None:
    shared.add_argument(
        "--workers",
        type=_positive,
        metavar="N",
        help="trainings that a sweep or a benchmark runs side by side; of other jobs, processes of each training; "
        "does not change the result",
    )
    shared.add_argument(
        "--workers-per-training",
        type=_positive,
        metavar="N",
        help="processes of each training, on Ray Train, and actors that encode and search; default: one for each GPU "
        "that no other training of the job would use, and without GPUs 1",
    )


def add_set_flag(parser: argparse._ActionsContainer, of: str) -> None:
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        type=_change,
        metavar="PATH=VALUE",
        help=f"replace a field of {of}; may be given again",
    )


def add_storage_flag(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--storage", metavar="PLACE", help="folder or URI for results; default: store/ in the project")


def add_tracking_flag(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow's; default: sqlite:///mlflow.db in the project")


def add_zero_shot_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--zero-shot",
        action="append",
        default=[],
        metavar="NAME",
        help="also evaluate, without training, on the test queries of FORMAT:PLACE, or on a group of BEIR's sets with "
        "their average: beir13:PLACE, beir14:PLACE, beir18:PLACE; may be given again",
    )


def add_sweep_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that all sweeps share."""
    parser.add_argument(
        "--search", choices=("grid", "random", "tpe"), help="how trials are chosen; default: the space's"
    )
    parser.add_argument("--trials", type=_positive, metavar="N", help="budget of all but grid; default: the space's")


def _change(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form PATH=VALUE")
    return path, value
