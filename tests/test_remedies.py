"""What messages say to type works: all literals of the package are read for commands, flags, fields and extras; and
what a message shows is typed where it was shown, in Python and as flags of a job.
"""

import ast
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import mlflow.experiments
import pytest

import midmask
from midmask.app.driver import recipe_for
from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.commands import JOBS, TOOLS
from midmask.commands.shell import whole_parser
from midmask.errors import UserError
from midmask.identity import flatten
from midmask.queries.config import QueriesConfig
from midmask.recipes.fields import FILE, _with_sections, any_stage
from midmask.tracking.store import create_store
from tests.support.api import toy

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform" / "midmask"

FOREIGN = set(
    "--node-ip-address --force-reinstall --no-deps --backend-store-uri --host --port --server --working-dir --quiet "
    "--disable-usage-stats --dashboard-port --dashboard-agent-listen-port --ray-client-server-port --dashboard-host "
    "--temp-dir --help --head".split()
)
"""Flags of ray, mlflow, streamlit and pip."""

PATH = r"(?P<path>[a-z_]+(?:\.[a-z_*{}0-9N]+)+|[a-z_]+=)"
ADVICE = re.compile(rf"\b(?:[Ss]et|[Rr]aise|[Uu]se|[Cc]hoose|[Tt]ype|[Ww]rite|[Gg]ive|[Nn]ame) {PATH}")
A_FILE = re.compile(r"\.(jsonl|json|gz|tsv|parquet|npy|py|html|md)$")
STYLES = re.compile(r"var\(--|style=\"--")
PAGES = ("recipes/fields_page.py",)
"""Modules whose literals are pages of the documentation, for a checkout."""


@cache
def flags() -> set[str]:
    """Every flag of every command."""
    (commands,) = (action.choices for action in whole_parser()._actions if isinstance(action.choices, dict))
    return {name for parser in commands.values() for one in parser._actions for name in one.option_strings}


@cache
def fields() -> set[str]:
    """Every path that a recipe or `choose` has, sections too; `*` for a stage."""
    made = [f"queries.{path}" for path in flatten(QueriesConfig())]
    return _with_sections([*FILE.read_text("utf-8").split(), *made])


@cache
def targets() -> list[str]:
    return re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)


@cache
def extras() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return found


def faults(text: str) -> Iterator[str]:
    """What a message advises and nobody can type. `{}` stands for a value that is filled in."""
    yield from (f"make {target}" for target in re.findall(r"\bmake ([a-z-]+)\b", text) if target in targets())
    if re.search(r"constraints\.txt|pip install -e", text):
        yield "pip install from a checkout"
    yield from (f"extra {name}" for name in re.findall(r"midmask\[([a-z-]+)\]", text) if name not in extras())
    for name in re.findall(r"(?:`|: |with |, )midmask ([a-z]+(?:-[a-z]+)*)(?= -|`| [A-Z{]|$)", text):
        if name not in JOBS and name not in TOOLS:
            yield f"midmask {name}"
    yield from (job for job in re.findall(r"jobs/[a-z_]+\.py", text) if not (ROOT / job).is_file())
    for flag in () if STYLES.search(text) else re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text):
        if flag not in flags() and flag not in FOREIGN:
            yield flag
    for found in ADVICE.finditer(text):
        path = found["path"].rstrip("=")
        if not is_field(path) and not A_FILE.search(path):
            yield path


def is_field(path: str) -> bool:
    named = any_stage(re.sub(r"\bN\b", "0", path)).rstrip(".")
    if "{}" in named:  # such as {place}.pool
        end = named.rpartition("{}")[2]
        return any(known.endswith(end) for known in fields())
    return named in fields()


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each literal of a module that is no docstring."""
    tree = ast.parse(file.read_text("utf-8"))
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_what_literals_advise_can_be_typed() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {fault}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if str(file.relative_to(PACKAGE)) not in PAGES
        for line, text in literals(file)
        for fault in faults(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "train.batch_size = 16: there are only 10 rows; set batch_size=10 or less",
        "is not installed: make venv",
        "type: pip install -c constraints.txt -e '.[documents]'",
        "pip install 'midmask[document]'",
        "train one with jobs/train_teachers.py",
        "make it with midmask evaluate-runs --corpus NAME",
        "name it: --corpora beir:FOLDER",
        "set train.recompute=true",
    ],
)
def test_the_reader_of_literals_sees_what_cannot(text: str) -> None:
    assert list(faults(text))


TEXTS, QUERIES = toy.texts()[:40], toy.queries()[:40]
QUICK = {**toy.SETTINGS, "pretrain.steps": 2, "stages.0.train.steps": 2}


def collection(**changes: Any) -> midmask.Corpus:
    given = {"queries": QUERIES, "relevant": range(40), "splits": {"train": range(30), "dev": range(30, 40)}}
    return midmask.Corpus.from_texts(TEXTS, **{**given, **changes})


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as refused:
        call()
    return str(refused.value)


def typed_settings(message: str) -> dict[str, Any]:
    """What to give in Python: of `settings={…}`, else of `set PATH=VALUE`, SHARE being a half."""
    if shown := re.search(r"settings=(\{.*\})\)", message.replace("SHARE", "0.5")):
        changes: dict[str, Any] = ast.literal_eval(shown[1])
        return changes
    (path, value) = re.findall(r"\b[Ss]et ([a-z_.0-9]+)=([\w.]+)|\b[Uu]se ([a-z_.0-9]+)=([\w.]+)", message)[0][:2]
    return {path: value} if path else dict([re.findall(r"\b[Uu]se ([a-z_.0-9]+)=([\w.]+)", message)[0]])


def typed_flags(message: str, changes: Mapping[str, Any]) -> list[str]:
    """What to type in a shell: of `--set …`, else the settings."""
    shown = re.search(r"(--set .*?) \(in Python", message)
    if shown:
        return shlex.split(shown[1].replace("SHARE", "0.5"))
    return [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]


TRAINED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "one query a step": ("none", {}, {"stages.0.train.batch_size": 1}),
    "no negatives": ("none", {}, {"stages.0.loss.candidates": "own"}),
    "one relevant passage": ("none", {"relevant": [0] * 40}, {}),
    "few queries": ("none", {}, {"stages.0.train.batch_size": 31}),
    "few texts": ("mlm", {}, {"pretrain.batch_size": 41}),
    "one text a step": ("ict", {}, {"pretrain.batch_size": 1}),
    "no terms": ("retromae", {}, {"objective.encoder_weight": 0, "objective.decoder_weight": 0}),
    "no targets": ("mlm", {}, {"objective.encoder_mask_ratio": 1e-9}),
    "long texts": ("mlm", {}, {"tokens.max_length": 4000}),
    "no dropout": ("simcse", {}, {"backbone.dropout": 0.0}),
    "regularisers": (
        "none",
        {},
        {"stages.0.loss.regularisers.query": "l1", "stages.0.loss.regularisers.lambda_query": 1},
    ),
    "no teacher": ("none", {}, {"stages.0.loss": {"name": "distillation"}}),
}


@pytest.mark.parametrize("case", TRAINED)
def test_a_training_takes_what_its_refusal_shows(case: str, tmp_path: Path) -> None:
    recipe, given, wrong = TRAINED[case]
    corpus = collection(**given)

    def train(changes: Mapping[str, Any]) -> object:
        return midmask.train(recipe, corpus, settings={**QUICK, **changes}, storage=tmp_path, progress=False)

    message = refusal(lambda: train(wrong))
    shown = typed_settings(message)
    train({**wrong, **shown})
    first = [
        word for path, value in wrong.items() if not isinstance(value, dict) for word in ("--set", f"{path}={value}")
    ]
    options = resolve(parse(["--recipe", recipe, *first, *typed_flags(message, shown)], None), ROOT / "jobs" / "any.py")
    recipe_for(options, default=recipe).check()


def test_a_path_without_its_beginning_is_completed(tmp_path: Path) -> None:
    for call in (
        lambda: midmask.train("mlm", collection(), settings={"train.batch_size": 10}, storage=tmp_path),
        lambda: resolve(parse(["--set", "train.batch_size=10"], None)),
    ):
        assert "did you mean 'stages.0.train.batch_size'?" in refusal(call)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of which three rows in eleven cannot be read, and a run file of it."""
    folder = tmp_path_factory.mktemp("damaged")
    rows = [f'{{"_id": "{number}", "text": "{text}"}}' for number, text in enumerate(TEXTS[:8])]
    (folder / "corpus.jsonl").write_text("\n".join([*rows, "{", "{", "{"]))
    (folder / "queries.jsonl").write_text("\n".join(f'{{"_id": "q{n}", "text": "{QUERIES[n]}"}}' for n in range(8)))
    (folder / "qrels").mkdir()
    judged = "\n".join(f"q{number}\t{number}\t1" for number in range(8))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}\n")
    (folder / "run.trec").write_text("\n".join(f"q{number} Q0 {number} 1 1.0 tag" for number in range(8)))
    return folder


ENTRIES: dict[str, Callable[[Path, Path, dict[str, Any]], object]] = {
    "evaluate": lambda folder, store, settings: midmask.evaluate(
        "bm25", midmask.Corpus.from_beir(folder), settings=settings, storage=store, progress=False
    ),
    "evaluate_run": lambda folder, store, settings: midmask.evaluate_run(
        folder / "run.trec", midmask.Corpus.from_beir(folder), settings=settings, storage=store, progress=False
    ),
    "train": lambda folder, store, settings: midmask.train(
        "mlm",
        midmask.Corpus.from_beir(folder),
        settings={**QUICK, "pretrain.batch_size": 4, "stages.0.train.batch_size": 2, **settings},
        storage=store,
        progress=False,
    ),
    "Corpus": lambda folder, store, settings: midmask.evaluate(
        "bm25", midmask.Corpus.from_folder(f"beir:{folder}", settings=settings), storage=store, progress=False
    ),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_rows_are_left_out_where_the_refusal_was_shown(entry: str, damaged: Path, tmp_path: Path) -> None:
    message = refusal(lambda: ENTRIES[entry](damaged, tmp_path, {}))
    shown = typed_settings(message)
    assert shown == {"corpus.bad_rows_threshold": 0.5}
    ENTRIES[entry](damaged, tmp_path, shown)
    assert parse(typed_flags(message, shown), None).changes == [("corpus.bad_rows_threshold", "0.5")]


def test_a_setting_that_an_entry_does_not_reach_is_refused(damaged: Path, tmp_path: Path) -> None:
    for entry in ("evaluate", "evaluate_run", "Corpus"):
        assert "pretrain.steps" in refusal(lambda: ENTRIES[entry](damaged, tmp_path, {"pretrain.steps": 3}))  # noqa: B023


def test_settings_win_over_arguments(tmp_path: Path) -> None:
    found = midmask.evaluate("bm25", collection(), settings={"evaluation.measures": ["RR@5"]}, storage=tmp_path)
    assert list(found.measures) == ["RR@5"]


def test_a_deleted_experiment_is_brought_back_by_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path}/runs of mine.db"
    client, experiment = create_store(uri, tmp_path)
    client.delete_experiment(experiment)
    message = refusal(lambda: create_store(uri, tmp_path))
    variable, program, *rest = shlex.split(message.partition("bring it back with: ")[2])
    assert program == "mlflow" and rest[0] == "experiments"
    monkeypatch.setenv(*variable.split("=", 1))
    mlflow.set_tracking_uri(None)
    mlflow.experiments.commands.main(rest[1:], standalone_mode=False)
    assert create_store(uri, tmp_path)[1] == experiment
