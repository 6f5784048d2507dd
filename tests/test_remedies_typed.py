"""What a message shows is typed where it was shown, in Python and as flags of a job, and works."""

import ast
import re
import shlex
import shutil
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import mlflow.experiments
import pytest

import midmask
from midmask.app.driver import recipe_for
from midmask.app.flags import parse, same_store
from midmask.app.job import resolve
from midmask.choice.request import queries_as_asked
from midmask.commands import JOBS
from midmask.commands.shell import run_tool
from midmask.errors import UserError
from midmask.experiment.reading_notes import MUCH, notes
from midmask.leaderboard.selection import select_systems
from midmask.leaderboard.watch import look_once
from midmask.queries.config import QueriesConfig
from midmask.tracking.store import create_store
from tests.support.api import toy

ROOT = Path(__file__).parents[1]

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
    "no negatives": ("none", {}, {"stages.0.loss.candidates": "own"}),
    "one relevant passage": ("none", {"relevant": [0] * 40}, {}),
    "few texts": ("mlm", {}, {"pretrain.batch_size": 41}),
    "no terms": ("retromae", {}, {"objective.encoder_weight": 0, "objective.decoder_weight": 0}),
    "no targets": ("mlm", {}, {"objective.encoder_mask_ratio": 1e-9}),
    "long texts": ("mlm", {}, {"tokens.max_length": 4000}),
    "no teacher": ("none", {}, {"stages.0.loss": {"name": "distillation"}}),
}
"""A mistake -> recipe, what the collection has, and settings that are refused."""


@pytest.mark.parametrize("case", TRAINED)
def test_a_training_takes_what_its_refusal_shows(case: str, tmp_path: Path) -> None:
    recipe, given, wrong = TRAINED[case]
    corpus = collection(**given)

    def train(changes: Mapping[str, Any]) -> object:
        return midmask.train(recipe, corpus, settings={**QUICK, **changes}, storage=tmp_path, progress=False)

    message = refusal(lambda: train(wrong))
    shown = typed_settings(message)
    train({**wrong, **shown})
    first = typed_flags("", {path: value for path, value in wrong.items() if not isinstance(value, dict)})
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
    (folder / "qrels").mkdir()
    found = {
        "corpus.jsonl": [*rows, "{", "{", "{"],
        "queries.jsonl": [f'{{"_id": "q{n}", "text": "{QUERIES[n]}"}}' for n in range(8)],
        "qrels/test.tsv": ["query-id\tcorpus-id\tscore", *(f"q{n}\t{n}\t1" for n in range(8))],
        "run.trec": [f"q{n} Q0 {n} 1 1.0 tag" for n in range(8)],
    }
    for name, lines in found.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def corpus_of(folder: Path, settings: Mapping[str, Any]) -> midmask.Corpus:
    return midmask.Corpus.from_folder(f"beir:{folder}", settings=settings)


ENTRIES: dict[str, Callable[..., object]] = {
    "evaluate": lambda folder, settings, **more: midmask.evaluate(
        "bm25", midmask.Corpus.from_beir(folder), settings=settings, **more
    ),
    "evaluate_run": lambda folder, settings, **more: midmask.evaluate_run(
        folder / "run.trec", midmask.Corpus.from_beir(folder), settings=settings, **more
    ),
    "train": lambda folder, settings, **more: midmask.train(
        "mlm", midmask.Corpus.from_beir(folder), settings={**QUICK, **FEW, **settings}, **more
    ),
    "Corpus": lambda folder, settings, **more: midmask.evaluate("bm25", corpus_of(folder, settings), **more),
}
FEW = {"pretrain.batch_size": 4, "stages.0.train.batch_size": 2}


@pytest.mark.parametrize("entry", ENTRIES)
def test_rows_are_left_out_where_the_refusal_was_shown(entry: str, damaged: Path, tmp_path: Path) -> None:
    here = {"storage": tmp_path, "progress": False}
    message = refusal(lambda: ENTRIES[entry](damaged, {}, **here))
    shown = typed_settings(message)
    assert shown == {"corpus.bad_rows_threshold": 0.5}
    ENTRIES[entry](damaged, shown, **here)
    assert parse(typed_flags(message, shown), None).changes == [("corpus.bad_rows_threshold", "0.5")]


def test_a_setting_that_an_entry_does_not_reach_is_refused(damaged: Path, tmp_path: Path) -> None:
    for entry in ("evaluate", "evaluate_run", "Corpus"):
        wrong = partial(ENTRIES[entry], damaged, {"pretrain.steps": 3}, storage=tmp_path, progress=False)
        assert "pretrain.steps" in refusal(wrong)


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    shutil.copy(empty_store, tmp_path / "runs of mine.db")
    return f"sqlite:///{tmp_path}/runs of mine.db"


def test_a_deleted_experiment_is_brought_back_by_what_is_shown(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, experiment = create_store(uri, tmp_path)
    client.delete_experiment(experiment)
    message = refusal(lambda: create_store(uri, tmp_path))
    variable, program, *rest = shlex.split(message.partition("bring it back with: ")[2])
    assert program == "mlflow" and rest[0] == "experiments"
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv(*variable.split("=", 1))
    mlflow.experiments.commands.main(rest[1:], standalone_mode=False)
    assert create_store(uri, tmp_path)[1] == experiment


def test_the_note_on_cut_passages_is_followed_by_reading_more(tmp_path: Path) -> None:
    corpus = collection()
    folder = midmask.train("none", corpus, settings=QUICK, storage=tmp_path, progress=False).model

    def read(settings: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        done = midmask.evaluate(folder, corpus, settings=settings, storage=tmp_path, progress=False).artifact
        return done.result["read"]["passages"], notes({"model": done})

    cut, note = read({})
    assert cut["cut_share"] > MUCH
    more, note = read(typed_settings(note))
    assert more["length"] == 2 * cut["length"] and more["cut_share"] < cut["cut_share"]


def test_a_command_that_is_shown_names_the_store_that_was_given(uri: str, tmp_path: Path) -> None:
    create_store(uri, tmp_path)
    run = tmp_path / "a run.trec"
    run.write_text("q Q0 d 1 1.0 tag\n")
    given = same_store(Namespace(tracking_uri=uri))
    message = refusal(lambda: select_systems([str(run), "bm25"], look_once(uri), None, store=given))
    _, command, *typed = shlex.split(message.partition("measure it first: ")[2])
    flags = parse(typed, None, JOBS[command].load().add_flags)
    assert (flags.files, flags.tracking_uri) == ([str(run)], uri)


def test_choose_takes_the_fields_of_queries_that_its_messages_name() -> None:
    typed = ["--set", "queries.per_passage=3", "--set", "queries.round_trip_depth=50", "--set", "pretrain.steps=5"]
    flags = parse(typed, None, JOBS["choose"].load().add_flags)
    queries, others = queries_as_asked(QueriesConfig(), resolve(flags).changes)
    assert (queries.per_passage, queries.round_trip_depth, dict(others)) == (3, 50, {"pretrain.steps": "5"})
    assert "queries.per_passage" in refusal(lambda: resolve(parse(typed, None)))


def test_search_leaves_rows_out_as_its_refusal_shows(damaged: Path, tmp_path: Path) -> None:
    typed = [str(tmp_path), "word", "--corpus", f"beir:{damaged}", "--storage", str(tmp_path / "store")]
    message = refusal(lambda: run_tool("search", typed))
    assert "corpus.bad_rows_threshold" in message
    after = refusal(lambda: run_tool("search", [*typed, *typed_flags(message, {})]))
    assert "config.json" in after  # the folder is no model's, which is seen once the collection was read
