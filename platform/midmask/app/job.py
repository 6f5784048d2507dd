"""What all jobs share: their flags, and where results go.

A job is a function `work(options, flags)` and a docstring; `run` does the rest.
"""

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn
from urllib.parse import unquote, urlsplit

from midmask.app.console import set_up_logging
from midmask.app.exits import interrupt, run_to_exit
from midmask.app.flags import AddFlags, parse
from midmask.corpora.formats import has_folder, refuse_unknown_form
from midmask.errors import UserError
from midmask.recipes import RECIPES
from midmask.recipes.fields import refuse_unknown_fields
from midmask.recipes.protocols import PROTOCOLS
from midmask.redaction import has_credentials, redact_output, redacted
from midmask.switches import SWITCHES


@dataclass(frozen=True)
class Options:
    """The shared flags of a job, resolved by the driver; nothing in here is relative to a working directory.

    job: name of the job, from its file. corpus: `pydocs` or FORMAT:PLACE. further_corpora: those of a benchmark beside
    it. pretrain_on: empty, or what the middle training reads in its place. recipe, protocol, workers,
    workers_per_training, seed: None where not given. scale: of the protocol, demo or published. changes: dotted config
    path -> value as typed. storage: absolute path or URI. tracking_uri: as MLflow wants it. on: the cluster that a dry
    run is reckoned for; none: this machine.
    """

    job: str
    corpus: str
    pretrain_on: tuple[str, ...]
    recipe: str | None
    protocol: str | None
    scale: Literal["demo", "published"]
    changes: Mapping[str, str]
    home: Path
    storage: str
    tracking_uri: str
    workers: int | None
    workers_per_training: int | None
    seed: int | None
    dry_run: bool
    on: str | None = None
    further_corpora: tuple[str, ...] = ()

    @property
    def training_workers(self) -> int | None:
        """Processes of a training that has the cluster to itself; none: as many as there are GPUs, else one."""
        return self.workers_per_training or self.workers

    def where_to_look(self) -> str:
        """Two commands for the end of a job's output: they open MLflow's UI and the leaderboard, both on loopback."""
        from midmask.tracking import ui_command  # here, so that --help does not wait for MLflow

        store = f"MLFLOW_TRACKING_URI={shlex.quote(redacted(self.tracking_uri))}"
        page = project() / "dashboards" / "leaderboard.py"
        if not page.is_file():  # pages come with a checkout
            return ui_command(self.tracking_uri)
        pages = f"{store} streamlit run {shlex.quote(str(page))} --server.address 127.0.0.1"
        return f"{ui_command(self.tracking_uri)}\n{pages}"


INSIDE = "any"
"""A file of this name stands for the folder that it would lie in, where a job's file is asked for."""

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
    """Parses the command line, calls `work(options, flags)` and ends the process as `midmask.app.exits` says.

    Args:
        work: gets the shared options, and the namespace that also holds the job's own flags.
        description: the job's docstring, shown by --help.
        add_flags: adds the job's own flags to the parser.
        arguments: the flags; none: those of this process.
        job_file: names the job, and lies in the project; none: the file that this process runs.
        prog: as in `parse`.
    """
    set_up_logging()
    redact_output(sys.argv)
    signal.signal(signal.SIGTERM, interrupt)  # `ray job stop` ends a job as Ctrl-C does

    def parsed() -> None:
        flags = parse(sys.argv[1:] if arguments is None else arguments, description, add_flags, prog)
        refuse_credentials(flags)
        hide_tracking_uri(flags.tracking_uri)
        os.environ.update({variable: "1" for flag, variable in SWITCHES.items() if getattr(flags, flag)})
        work(resolve(flags, job_file), flags)

    run_to_exit(parsed)


def refuse_credentials(flags: argparse.Namespace) -> None:
    """Raises UserError for a storage, collection or field whose URI contains a password or a signature: results,
    records and tracked runs name it. The tracking URI is named nowhere, so it may contain them.
    """
    given = {**vars(flags), "storage": flags.storage or os.environ.get("MIDMASK_STORAGE")}
    for name, value in given.items():
        if name != "tracking_uri" and has_credentials(str(value)):
            typed = {"changes": "--set", "further_corpora": "--corpus"}
            flag = typed.get(name, f"--{name.replace('_', '-')}")
            raise UserError(
                f"{flag} {redacted(str(value))} contains credentials, which records and tracked runs would show. Leave "
                "them out, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or what your store reads instead) "
                "where the driver and the cluster's nodes are started."
            )


def hide_tracking_uri(uri: str | None) -> None:
    """Starts this process anew, with a tracking URI that contains credentials in its environment instead of on its
    command line, which `ps` shows to everyone and Ray writes to its logs.
    """
    if uri is None or redacted(uri) == uri:
        return
    os.environ["MLFLOW_TRACKING_URI"] = uri
    typed, kept = iter(sys.orig_argv[1:]), []
    for argument in typed:
        if argument == "--tracking-uri":
            next(typed)
        elif not argument.startswith("--tracking-uri="):
            kept.append(argument)
    os.execv(sys.executable, [sys.executable, *kept])


def home(job_file: Path | None = None) -> Path:
    """The folder that relative stores are taken from: MIDMASK_HOME, else the project's."""
    given = os.environ.get("MIDMASK_HOME")
    return Path(given).expanduser().absolute() if given else project(job_file)


def project(job_file: Path | None = None) -> Path:
    """The folder of pyproject.toml: above the job's file, the working directory or this package."""
    for start in (job_file or Path(sys.argv[0]), Path.cwd() / INSIDE, Path(__file__)):
        for folder in start.absolute().parents:
            if (folder / "pyproject.toml").is_file():
                return folder
    return Path.cwd()


def resolve(flags: argparse.Namespace, job_file: Path | None = None) -> Options:
    """The shared flags made absolute.

    Raises:
        UserError: in an uploaded working directory, if results would go into it: Ray deletes it.
    """
    from midmask.tracking import resolve_tracking_uri  # here, so that --help does not wait for MLflow

    if flags.on is not None and not flags.dry_run:
        raise UserError(f"--on {flags.on}: it says for which cluster a --dry-run is reckoned; add --dry-run")
    refuse_misspelt(flags)
    job_file = job_file or Path(sys.argv[0])
    base = home(job_file)
    storage = resolve_storage(flags.storage, base)
    tracking_uri = resolve_tracking_uri(flags.tracking_uri, base)
    refuse_lost_results(storage, tracking_uri)
    return Options(
        job=job_file.stem,
        corpus=resolve_corpus(flags.corpus or "pydocs", base),
        further_corpora=tuple(resolve_corpus(name, base) for name in flags.further_corpora),
        pretrain_on=tuple(flags.pretrain_on),
        recipe=flags.recipe,
        protocol=flags.protocol,
        scale=flags.scale,
        changes={**_column_changes(flags), **dict(flags.changes)},
        home=base,
        storage=storage,
        tracking_uri=tracking_uri,
        workers=flags.workers,
        workers_per_training=flags.workers_per_training,
        seed=flags.seed,
        dry_run=flags.dry_run,
        on=flags.on,
    )


def _column_changes(flags: argparse.Namespace) -> dict[str, str]:
    """--text-column and --title-column as fields, quoted so that a column `12` or `none` stays a name."""
    columns = {"corpus.text_column": flags.text_column, "corpus.title_column": flags.title_column}
    return {path: json.dumps(name) for path, name in columns.items() if name is not None}


def refuse_misspelt(flags: argparse.Namespace) -> None:
    """Raises UserError for a recipe, protocol, corpus format or field that there is not, before anything heavy is
    imported.
    """
    for table, name in ((RECIPES, flags.recipe), (PROTOCOLS, flags.protocol)):
        if name is not None:
            table[name]
    for name in (*([flags.corpus] if flags.corpus else ()), *flags.further_corpora):
        refuse_unknown_form(name)
    own = getattr(flags, "sections", ())  # of a job that has fields beside a recipe's
    refuse_unknown_fields(path for path, _ in flags.changes if not path.startswith(own))


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
