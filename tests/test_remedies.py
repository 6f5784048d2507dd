"""What a message shows is typed where it was shown, in Python and as flags of a job, and works; and the commands, flags
and extras that the package's texts name are there.
"""

import ast
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Mapping
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
from midmask.tracking.names import command_over
from midmask.tracking.store import create_store
from tests.support.api import toy

ROOT = Path(__file__).parents[1]

TEXTS, QUERIES = toy.texts()[:40], toy.queries()[:40]
QUICK = {**toy.SETTINGS, "pretrain.steps": 2, "stages.0.train.steps": 2}


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as refused:
        call()
    return str(refused.value)


def typed_settings(message: str) -> dict[str, Any]:
    """What to give in Python: of `settings={…}`, else of `set PATH=VALUE`, SHARE being a half."""
    if shown := re.search(r"settings=(\{.*\})\)", message.replace("SHARE", "0.5")):
        changes: dict[str, Any] = ast.literal_eval(shown[1])
        return changes
    return dict(re.findall(r"\b(?:[Ss]et|[Uu]se) ([a-z_.0-9]+)=([\w.]+)", message)[:1])


def typed_flags(message: str, changes: Mapping[str, Any]) -> list[str]:
    """What to type in a shell: of `--set …`, else the settings."""
    if shown := re.search(r"(--set .*?) \(in Python", message):
        return shlex.split(shown[1].replace("SHARE", "0.5"))
    return [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]


@pytest.mark.parametrize(
    ("recipe", "given", "wrong"),
    [
        ("none", {}, {"stages.0.loss.candidates": "own"}),
        ("none", {"relevant": [0] * 40}, {}),
        ("mlm", {}, {"pretrain.batch_size": 41}),
        ("retromae", {}, {"objective.encoder_weight": 0, "objective.decoder_weight": 0}),
        ("mlm", {}, {"objective.encoder_mask_ratio": 1e-9}),
        ("mlm", {}, {"tokens.max_length": 4000}),
        ("none", {}, {"stages.0.loss": {"name": "distillation"}}),
    ],
    ids=["no negatives", "one relevant passage", "few texts", "no terms", "no targets", "long texts", "no teacher"],
)
def test_a_training_takes_what_its_refusal_shows(
    recipe: str, given: dict[str, Any], wrong: dict[str, Any], tmp_path: Path
) -> None:
    plain = {"queries": QUERIES, "relevant": range(40), "splits": {"train": range(30), "dev": range(30, 40)}}
    corpus = midmask.Corpus.from_texts(TEXTS, **{**plain, **given})

    def train(changes: Mapping[str, Any]) -> object:
        return midmask.train(recipe, corpus, settings={**QUICK, **changes}, storage=tmp_path, progress=False)

    message = refusal(lambda: train(wrong))
    shown = typed_settings(message)
    train({**wrong, **shown})
    first = typed_flags("", {path: value for path, value in wrong.items() if not isinstance(value, dict)})
    options = resolve(parse(["--recipe", recipe, *first, *typed_flags(message, shown)], None), ROOT / "jobs" / "any.py")
    recipe_for(options, default=recipe).check()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of which three rows in eleven cannot be read."""
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "qrels").mkdir()
    found = {
        "corpus.jsonl": [*(f'{{"_id": "{n}", "text": "{TEXTS[n]}"}}' for n in range(8)), "{", "{", "{"],
        "queries.jsonl": [f'{{"_id": "q{n}", "text": "{QUERIES[n]}"}}' for n in range(8)],
        "qrels/test.tsv": ["query-id\tcorpus-id\tscore", *(f"q{n}\t{n}\t1" for n in range(8))],
    }
    for name, lines in found.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("entry", ["evaluate", "train"])
def test_rows_are_left_out_where_the_refusal_was_shown(entry: str, damaged: Path, tmp_path: Path) -> None:
    def call(settings: Mapping[str, Any]) -> object:
        corpus, here = midmask.Corpus.from_folder(f"beir:{damaged}"), {"storage": tmp_path}
        if entry == "train":
            few = {"pretrain.batch_size": 4, "stages.0.train.batch_size": 2}
            return midmask.train("mlm", corpus, settings={**QUICK, **few, **settings}, progress=False, **here)
        return midmask.evaluate("bm25", corpus, settings=settings, **here)

    message = refusal(lambda: call({}))
    shown = typed_settings(message)
    assert shown == {"corpus.bad_rows_threshold": 0.5}
    call(shown)
    assert parse(typed_flags(message, shown), None).changes == [("corpus.bad_rows_threshold", "0.5")]
    assert entry == "train" or "pretrain.steps" in refusal(lambda: call({"pretrain.steps": 3})), "it trains nothing"


def test_commands_that_are_shown_name_the_store_that_was_given(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(empty_store, tmp_path / "my runs.db")
    uri = f"sqlite:///{tmp_path}/my runs.db"
    client, experiment = create_store(uri, tmp_path)
    variable, *command = shlex.split(command_over(uri, "compare one other"))
    assert variable == f"MLFLOW_TRACKING_URI={uri}" and command[-3:] == ["compare", "one", "other"]
    client.delete_experiment(experiment)
    message = refusal(lambda: create_store(uri, tmp_path))
    variable, program, *rest = shlex.split(message.partition("bring it back with: ")[2])
    assert program == "mlflow" and rest[0] == "experiments"
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv(*variable.split("=", 1))
    mlflow.experiments.commands.main(rest[1:], standalone_mode=False)
    assert create_store(uri, tmp_path)[1] == experiment


FOREIGN = set(
    "--node-ip-address --force-reinstall --no-deps --backend-store-uri --host --port --server --working-dir --quiet "
    "--help --head --baseline".split()
)
"""Flags of ray, mlflow, streamlit, pip, the page that Streamlit runs, and `python -m midmask.benchmark.figures`."""


def test_commands_flags_and_extras_that_texts_name_are_there() -> None:
    (commands,) = (action.choices for action in whole_parser()._actions if isinstance(action.choices, dict))
    parsers = (whole_parser(), *commands.values())
    flags = {name for parser in parsers for one in parser._actions for name in one.option_strings} | FOREIGN
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wrong = []
    for file in (ROOT / "platform" / "midmask").rglob("*.py"):
        for line in file.read_text("utf-8").splitlines():
            named = re.findall(r"(?:`|: |with |, )midmask ([a-z]+(?:-[a-z]+)*)(?= -|`| [A-Z{]|$)", line)
            found = [name for name in named if name not in JOBS and name not in TOOLS]
            found += [name for name in re.findall(r"midmask\[([a-z-]+)\]", line) if name not in extras]
            found += [job for job in re.findall(r"jobs/[a-z_]+\.py", line) if not (ROOT / job).is_file()]
            if not re.search(r"var\(--|style=", line):  # of a style sheet
                found += [
                    one for one in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w:-])", line) if one not in flags
                ]
            wrong += [(file, name) for name in found]
    assert not wrong
