"""Names in MLflow: a store as a URI, and a measure as a metric's key and back.

Imports no MLflow, so that what only needs a name, such as a dry run, does not wait for it.
"""

import os
import posixpath
import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from midmask.core.process import shell_command
from midmask.core.redaction import redacted
from midmask.errors import UserError

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SERVERS = ("http", "https", "databricks")
_ADVICE = "Use sqlite:///mlflow.db, a database (postgresql://…, mysql://…, mssql://…) or an MLflow server (http://…)."


def resolve_tracking_uri(flag: str | None, home: Path) -> str:
    """The store's URI: the flag, else MLFLOW_TRACKING_URI, else `sqlite:///<home>/mlflow.db`.

    A relative SQLite path is resolved against `home`.

    Raises:
        UserError: for a `file:` store or a folder, which MLflow no longer keeps, and for anything unknown.
    """
    uri = (flag or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db").strip()
    scheme = scheme_of(uri)
    if scheme == "sqlite":
        return _absolute_sqlite(uri, home)
    if scheme not in DATABASES + SERVERS:
        raise UserError(
            f"tracking URI {redacted(uri)!r} is neither a database nor a server; MLflow no longer supports folders. "
            f"{_ADVICE}"
        )
    return uri


def _absolute_sqlite(uri: str, home: Path) -> str:
    prefix, _, rest = uri.partition(":///")
    path, mark, query = rest.partition("?")
    if not path or path == ":memory:":
        raise UserError(f"tracking URI {redacted(uri)!r} names no file, so nothing would be kept. {_ADVICE}")
    file = str(home.absolute() / path)
    if unfit := set(file) & set("#%?"):
        raise UserError(f"tracking URI {redacted(uri)!r}: MLflow opens no file with {min(unfit)!r}: {file}. {_ADVICE}")
    return f"{prefix}:///{file}{mark}{query}"


def scheme_of(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].lower()


def is_database(uri: str) -> bool:
    return scheme_of(uri) in DATABASES


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store, None for any other."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.partition(":///")[2].partition("?")[0])


def command_over(uri: str, name: str) -> str:
    """The shell command `midmask NAME` over the runs of a store, such as `ui` or `leaderboard`."""
    return f"MLFLOW_TRACKING_URI={shlex.quote(redacted(uri))} {shell_command()} {name}"


def ui_address(uri: str) -> str:
    """The root of MLflow's pages: the server itself, or where `midmask ui` puts them."""
    if is_database(uri):
        return "http://127.0.0.1:5000"
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 5000

RECIPE_FILE = "recipe.json"
"""File of a run with its whole recipe, from which `--recipe FILE` makes it again."""

JOB_STEPS = ("job", "sweep")
"""`midmask.step` of jobs' runs, which repeat the main measure of the runs nested in them."""

# Tags of runs.
ARTIFACT = "midmask.artifact"  # where an artifact or a model's weights lie; a model that was only registered has none
RUN_FILE = "midmask.run_file"  # the TREC run file that a system was measured from
EXECUTOR = "midmask.executor"  # where a job's trainings run: `process` or `ray train`
LOG = "midmask.log"  # the path of a job's log, on the machine that runs it
PROGRESS = "midmask.progress"  # the last line of a job's progress: phase, steps, time left, best so far

_MEASURE = re.compile(r"([^@(]+)(?:\(([^@()]+)\))?(?:@([^@()]+))?")
_KEY = re.compile(r"[\w/.\- :]+")


def metric_key(corpus: str, split: str, measure: str) -> str:
    """CORPUS/SPLIT/MEASURE as MLflow accepts it. Few other metrics have three segments (`pretrain/health/NAME`), and
    ir-measures knows no measure of their last one.

    Args:
        measure: as ir-measures prints it, for example `R(rel=2)@100`.

    Raises:
        ValueError: for an empty part, or a measure of another form.
        UserError: if the key is longer than MLflow's 250 characters.
    """
    if not (corpus and split and measure):
        raise ValueError(f"corpus {corpus!r}, split {split!r} and measure {measure!r} must not be empty")
    key = f"{_segment(corpus)}/{_segment(split)}/{_encode(measure)}"
    if len(key) > LONGEST_KEY:
        raise UserError(
            f"metric key {key[:60]}… has {len(key)} characters, MLflow takes {LONGEST_KEY}; rename the corpus folder"
        )
    return key


def artifact_key(corpus: str, split: str) -> str:
    """The tag with the place of a run's evaluation on a corpus and split, in a form that MLflow accepts."""
    return _key(ARTIFACT, corpus, split)


def collection_key(corpus: str) -> str:
    """The tag with the fingerprint of the collection that a run's metrics of `corpus` were measured on; two collections
    may share a short name.
    """
    return _key("midmask.collection", corpus)


def queries_key(corpus: str, split: str) -> str:
    """The tag with the number of queries that a run's metrics on a corpus and split are means of."""
    return _key("midmask.queries", corpus, split)


def made_here_key(corpus: str, split: str) -> str:
    """The tag, "true", of a run on a split of a corpus that midmask drew, since the collection has none of its own."""
    return _key("midmask.split_made_here", corpus, split)


def _key(tag: str, *names: str) -> str:
    return "/".join([tag, *map(_segment, names)])


def result_key(step: str, name: str) -> str:
    """STEP/NAME, of a number of a step's result; the name may hold a measure, a path or a URL."""
    return f"{step}/{_escape(name.replace('@', '_at_'), '_.-')}"[:LONGEST_KEY]


def measure_of(key: str) -> tuple[str, str, str]:
    """(corpus, split, measure as ir-measures prints it): the inverse of `metric_key`.

    Raises:
        ValueError: if the key does not have three segments.
    """
    corpus, split, measure = key.split("/")
    return _unescape(corpus), _unescape(split), _decode(measure)


def is_measure(key: str) -> bool:
    """Whether a metric's key has the three segments of a measure's."""
    return key.count("/") == 2


def _encode(measure: str) -> str:
    """The parts of NAME(KEY=VALUE,…)@CUTOFF joined by `_`."""
    match = _MEASURE.fullmatch(measure)
    if match is None:
        raise ValueError(f"{measure!r} is not NAME(KEY=VALUE,…)@CUTOFF, as ir-measures prints a measure")
    name, params, cutoff = match.groups()
    pairs = [param.split("=") for param in params.split(",")] if params else []
    parts = [_escape(name, "-"), *(f"{_escape(key, '-')}.{_escape(value, '-.')}" for key, value in pairs)]
    return "_".join(parts) + (f"_at_{_escape(cutoff, '-')}" if cutoff else "")


def _decode(text: str) -> str:
    name, *rest = text.split("_")
    params, cutoff = [], ""
    for index, part in enumerate(rest):
        key, dot, value = part.partition(".")
        if dot:
            params.append(f"{_unescape(key)}={_unescape(value)}")
        elif part == "at":
            cutoff = "@" + _unescape(rest[index + 1])
            break
    return _unescape(name) + (f"({','.join(params)})" if params else "") + cutoff


def _segment(text: str) -> str:
    """A corpus or split: `_`, `.` and `-` bear no structure there and stay, but a lone `.` or `..` would be a path."""
    escaped = _escape(text, "_.-")
    return escaped.replace(".", ":2e") if not escaped.strip(".") else escaped


def _escape(text: str, kept: str) -> str:
    """All but ASCII's letters and digits, and the kept signs, as a URL has them, with `:` in place of `%`."""
    return re.sub(f"[^A-Za-z0-9{re.escape(kept)}]", lambda sign: f":{sign[0].encode().hex(':')}", text)


def _unescape(text: str) -> str:
    return unquote(text.replace(":", "%"))


def check_key(key: str) -> str:
    """The name of a metric, param or tag, if MLflow takes it: one bad name would make it refuse the whole batch.

    Raises:
        ValueError: otherwise.
    """
    if not _KEY.fullmatch(key) or len(key) > LONGEST_KEY or posixpath.normpath(key) != key or key[0] in "/.":
        raise ValueError(f"MLflow takes no metric, param or tag named {key!r}; write measures with metric_key()")
    return key


def shorten(text: str, longest: int) -> str:
    """The text; if it is longer than `longest` characters, it is cut, with a marker of how many are missing."""
    if len(text) <= longest:
        return text
    marker = f"… [cut, {len(text)} characters]"
    return text[: longest - len(marker)] + marker
