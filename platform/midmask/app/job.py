"""How a job begins and ends: its shared flags and stores, where its log lines go, and its exit code.

A job is a function `work(options, flags)` and a help text; `run` does the rest.

Log lines: warnings and the progress go to standard error, and every line to a file, from when the job begins to
compute. --verbose (or MIDMASK_VERBOSE=1) shows every line on standard error too.

Exit codes: 0 the work was done, 2 a user's mistake (one line, no traceback), 130 interrupted, 141 the reader of its
output has gone (as `midmask run --dry-run | head`), 1 anything else, with its traceback.
"""

import argparse
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import unquote, urlsplit

from midmask.app.flags import AddFlags, parse
from midmask.core.process import SWITCHES, VERBOSE, is_on, same_command
from midmask.core.redaction import has_credentials, redacted
from midmask.corpora.config import has_folder, refuse_unknown_form
from midmask.errors import UserError
from midmask.recipes import RECIPES
from midmask.recipes.fields import refuse_unknown_fields
from midmask.recipes.protocols import PROTOCOLS

FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")

SHOWN = (
    *("midmask.app.progress", "midmask.app.tracked_job"),
    *("midmask.backend.cluster", "midmask.corpora.assemble"),
)
"""Loggers whose lines are always shown: the progress; what was computed before; the cluster; rows that were refused."""


class _StandardError:
    """Writes to what `sys.stderr` is at the time: a bar takes its place while it is shown."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def set_up_logging() -> None:
    """midmask's lines and everyone's warnings, on standard error, a line each: readable in `ray job submit`'s output.
    Of midmask's lines below a warning only those of `SHOWN`, unless `MIDMASK_VERBOSE` says otherwise.
    """
    root = logging.getLogger()
    for old in [candidate for candidate in root.handlers if candidate.name == "console"]:
        root.removeHandler(old)
    console = logging.StreamHandler(_StandardError())
    console.set_name("console")
    console.setFormatter(FORMAT)
    console.addFilter(_is_shown)
    root.addHandler(console)
    root.setLevel(logging.WARNING)
    logging.getLogger("midmask").setLevel(logging.INFO)


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name in SHOWN or is_on(VERBOSE)


@contextmanager
def log_file(folder: Path, job: str) -> Iterator[Path]:
    """Writes every line to a file of this process in the folder, until the block ends; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{job}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(FORMAT)
    root = logging.getLogger()
    root.addHandler(file)
    try:
        yield path
    finally:
        root.removeHandler(file)
        file.close()


def run_to_exit(work: Callable[[], None]) -> NoReturn:
    """Calls `work` and ends the process with one of the exit codes."""
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on where this one stopped: {same_command()}", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and not output_is_read():
            discard_output()
            sys.exit(141)
        mistake = mistake_in(error)
        if mistake is None:
            raise
        print(f"error: {redacted(mistake)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


def interrupt(number: int, frame: object) -> NoReturn:
    """A signal handler that ends the process as Ctrl-C does."""
    raise KeyboardInterrupt


def output_is_read() -> bool:
    """Whether standard output still has a reader."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def discard_output() -> None:
    """Leads standard output to nowhere, so that the interpreter's last flush does not fail a second time."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def mistake_in(error: BaseException) -> str | None:
    """The user's mistake behind an error, as one line; None if there is none, so that the error is a bug.

    Ray wraps what is raised in a task (`RayTaskError.cause`), in a training worker (`worker_failures`) and in the
    training controller (`controller_failure`); the wrapper's own text is a traceback.
    """
    inside = [getattr(error, "cause", None), getattr(error, "controller_failure", None), error.__cause__]
    inside += list(getattr(error, "worker_failures", {}).values())
    for cause in inside:
        if isinstance(cause, BaseException) and cause is not error and (mistake := mistake_in(cause)):
            return mistake
    if isinstance(error, UserError):
        return " ".join(str(error).split())
    return None


@dataclass(frozen=True)
class Options:
    """The shared flags of a job, resolved by the driver; nothing in here is relative to a working directory."""

    job: str  # name of the job, from its file
    corpus: str  # `pydocs` or FORMAT:PLACE
    pretrain_on: tuple[str, ...]  # collections that the middle training reads in place of `corpus`; empty: not given
    recipe: str | None  # a name, or the file of a saved recipe; None: not given
    protocol: str | None  # None: not given
    scale: Literal["demo", "published"]  # of the protocol
    set_fields: Mapping[str, str]  # dotted config path -> value as typed
    home: Path
    storage: str  # absolute path or URI
    tracking_uri: str  # as MLflow expects it
    workers: int | None  # None: not given
    workers_per_training: int | None  # None: not given
    seed: int | None  # None: not given
    dry_run: bool
    on: str | None = None  # cluster shape for the estimate of a dry run; None: this machine

    @property
    def has_saved_recipe(self) -> bool:
        """Whether `--recipe` names the `recipe.json` of a run, in which every field is settled."""
        return self.recipe is not None and self.recipe.endswith(SAVED)

    @property
    def training_workers(self) -> int | None:
        """Processes of a training that has the cluster to itself; none: as many as there are GPUs, else one."""
        return self.workers_per_training or self.workers


SAVED = ".json"
"""What the name of a saved recipe ends with: the file `recipe.json` of a tracked run."""


def saved_recipe(path: str) -> dict[str, Any]:
    """The fields of a saved recipe, as plain data.

    Raises:
        UserError: if there is no such file, or it holds no recipe.
    """
    try:
        fields = json.loads(Path(path).expanduser().read_text())
    except OSError as error:
        raise UserError(
            f"--recipe {path}: {error.strerror}; give the recipe.json of a run, or the name of a recipe"
        ) from None
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("corpus"), dict):
        raise UserError(f"--recipe {path}: it holds no recipe; give the recipe.json of a run, or the name of a recipe")
    return fields


JobWork = Callable[[Options, argparse.Namespace], None]


def run(
    work: JobWork,
    description: str | None,
    add_flags: AddFlags | None = None,
    *,
    arguments: Sequence[str] | None = None,
    job_file: Path | None = None,
    prog: str | None = None,
) -> NoReturn:
    """Parses the command line, calls `work(options, flags)` and ends the process as `midmask.app.job` says.

    Args:
        work: gets the shared options, and the namespace that also holds the job's own flags.
        description: the job's docstring, shown by --help.
        add_flags: adds the job's own flags to the parser.
        arguments: the flags; none: those of this process.
        job_file: names the job, and lies in the project; none: the file that this process runs.
        prog: as in `parse`.
    """
    set_up_logging()
    signal.signal(signal.SIGTERM, interrupt)  # `ray job stop` ends a job as Ctrl-C does

    def parsed() -> None:
        flags = parse(sys.argv[1:] if arguments is None else arguments, description, add_flags, prog)
        refuse_credentials(flags)
        os.environ.update({variable: "1" for flag, variable in SWITCHES.items() if getattr(flags, flag)})
        work(resolve(flags, job_file), flags)

    run_to_exit(parsed)


def refuse_credentials(flags: argparse.Namespace) -> None:
    """Raises UserError for a flag whose URI contains a password or a signature: lists of processes show it to everyone,
    and results, records and tracked runs name storages and collections.
    """
    settings = {**vars(flags), "storage": flags.storage or os.environ.get("MIDMASK_STORAGE")}
    for name, value in settings.items():
        if not has_credentials(str(value)):
            continue
        flag = "--set" if name == "changes" else f"--{name.replace('_', '-')}"
        remedy = (
            "put the whole URI into MLFLOW_TRACKING_URI"
            if name == "tracking_uri"
            else "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or what your store reads instead) where the driver "
            "and the cluster's nodes are started"
        )
        raise UserError(
            f"{flag} {redacted(str(value))} contains credentials, which lists of processes, records and tracked runs "
            f"would show. Leave them out, and {remedy}."
        )


def home(start: Path | None = None) -> Path:
    """The folder that relative stores are taken from: MIDMASK_HOME, else the project's."""
    folder = os.environ.get("MIDMASK_HOME")
    return Path(folder).expanduser().absolute() if folder else project(start)


def project(start: Path | None = None) -> Path:
    """The folder of pyproject.toml: `start` (none: the folder of this process's file), the working directory or this
    package's folder, or above.
    """
    for below in (start or Path(sys.argv[0]).parent, Path.cwd(), Path(__file__).parent):
        for folder in (below.absolute(), *below.absolute().parents):
            if (folder / "pyproject.toml").is_file():
                return folder
    return Path.cwd()


def resolve(flags: argparse.Namespace, job_file: Path | None = None) -> Options:
    """The shared flags made absolute.

    Raises:
        UserError: in an uploaded working directory, if results would go into it: Ray deletes it.
    """
    from midmask.tracking.names import resolve_tracking_uri  # here, so that --help does not wait for MLflow

    if flags.on is not None and not flags.dry_run:
        raise UserError(f"--on {flags.on}: it says for which cluster a --dry-run is reckoned; add --dry-run")
    refuse_misspelt(flags)
    job_file = job_file or Path(sys.argv[0])
    base = home(job_file.parent)
    storage = resolve_storage(flags.storage, base)
    tracking_uri = resolve_tracking_uri(flags.tracking_uri, base)
    refuse_lost_results(storage, tracking_uri)
    return Options(
        job=job_file.stem,
        corpus=resolve_corpus(flags.corpus or _corpus_of(flags.recipe), base),
        pretrain_on=tuple(flags.pretrain_on),
        recipe=flags.recipe,
        protocol=flags.protocol,
        scale=flags.scale,
        set_fields=dict(flags.changes),
        home=base,
        storage=storage,
        tracking_uri=tracking_uri,
        workers=flags.workers,
        workers_per_training=flags.workers_per_training,
        seed=flags.seed,
        dry_run=flags.dry_run,
        on=flags.on,
    )


def _corpus_of(recipe: str | None) -> str:
    """The collection of a saved recipe; of all others the built-in one."""
    return str(saved_recipe(recipe)["corpus"].get("name")) if recipe and recipe.endswith(SAVED) else "pydocs"


def refuse_misspelt(flags: argparse.Namespace) -> None:
    """Raises UserError for a recipe, protocol, corpus format or field that there is not, before anything heavy is
    imported.
    """
    for table, name in ((RECIPES, flags.recipe), (PROTOCOLS, flags.protocol)):
        if name is not None and not (table is RECIPES and name.endswith(SAVED)):
            table[name]
    if flags.corpus:
        refuse_unknown_form(flags.corpus)
    sections = getattr(flags, "sections", ())  # of a job that has fields beside a recipe's
    refuse_unknown_fields(path for path, _ in flags.changes if not path.startswith(sections))


def resolve_storage(flag: str | None, base: Path) -> str:
    """The flag, else MIDMASK_STORAGE, else `store`; a relative folder is taken from `base`, a URI as it is."""
    place = flag or os.environ.get("MIDMASK_STORAGE") or "store"
    return place if "://" in place else str(base / Path(place).expanduser())


def resolve_corpus(name: str, base: Path) -> str:
    """A corpus, or group of corpora, named by a relative folder, with that folder absolute: the working directory's,
    else the project's.

    Workers run in other directories than the driver, so none but the driver can do this.
    """
    kind, colon, place = name.partition(":")
    if not colon or not has_folder(kind) or "://" in place:
        return name
    folder = Path(place).expanduser()
    here = Path.cwd() / folder
    return f"{kind}:{here if here.exists() else base / folder}"


def refuse_lost_results(storage: str, tracking_uri: str) -> None:
    """Raises UserError naming each flag that would put results into Ray's copy of an uploaded working directory."""
    flags = {
        "--storage (or MIDMASK_STORAGE)": storage,
        "--tracking-uri (or MLFLOW_TRACKING_URI)": tracking_uri,
    }
    lost = {flag: place for flag, place in flags.items() if _in_uploaded_folder(place)}
    if lost:
        raise UserError(
            f"results would go to {', '.join(lost.values())}, inside Ray's copy of the uploaded folder, which is not "
            f"kept. Pass {' and '.join(lost)}, an absolute path or a URI, or set MIDMASK_HOME to a folder that stays."
        )


def _in_uploaded_folder(place: str) -> bool:
    parts = urlsplit(place)
    if parts.scheme.split("+")[0] not in ("", "file", "sqlite"):
        return False
    path = Path("/" + unquote(parts.path).lstrip("/")).resolve()
    return ("runtime_resources", "working_dir_files") in zip(path.parts, path.parts[1:], strict=False)
