"""The collections of the middle training: who reads what, what stays as it was, what is refused, and a run of each."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place, load
from midmask.experiment.plan import Step, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.corpora.collections import json_lines, write, write_beir

AS_BEFORE = {"corpus": "d6ad6ab229978c14", "tokens": "67ccc9d52826e518", "pretrained": "15f6bb2ced067d52"}
"""Of `mlm` on `tiny` before there was `pretrain_on`, with the library versions below. They may change with the recipe's
own numbers or `step.FORMAT`, and with nothing else.
"""


def tiny(folder: Path) -> Path:
    write(folder / "corpus.jsonl", b'{"_id": "d", "title": "", "text": "a passage"}\n')
    write(folder / "queries.jsonl", b'{"_id": "q", "text": "a query"}\n')
    write(folder / "qrels/test.tsv", b"query-id\tcorpus-id\tscore\nq\td\t1\n")
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """here: 60 passages with queries, fine-tuned on; there, more: other texts of the same words, ids as here."""
    write_beir(tmp_path / "here", passages=60, queries=45)
    for name, count, words in (("there", 40, "set of a passage"), ("more", 30, "small title set")):
        docs = [{"_id": f"d{n}", "text": f"{words} {n}"} for n in range(count)]
        write(tmp_path / name / "corpus.jsonl", json_lines(docs))
    return tmp_path


def recipe_on(folders: Path, *names: str, recipe: str = "mlm", **changes: Any) -> Recipe:
    """A recipe on `here`, two steps of each training, pre-trained on other collections."""
    small = {"tokens.vocabulary_size": 300, "tokens.max_length": 24, "pretrain.steps": 2, "pretrain.batch_size": 16}
    small |= {"pretrain.threads": 1, "corpus.name": f"beir:{folders}/here", "pretrain_on": list(names)}
    return override(RECIPES[recipe](), {**small, **changes})


def test_without_collections_of_its_own_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midmask.experiment.step.library_versions", lambda: {"torch": "2"})
    name = f"beir:{tiny(tmp_path / 'tiny')}"
    recipe = override(RECIPES["mlm"](), {"corpus.name": name})
    steps = plan(recipe)
    assert {role: getattr(steps, role).fingerprint for role in AS_BEFORE} == AS_BEFORE
    assert plan(override(recipe, {"pretrain_on": [name]})) == steps, "the corpus by its own name"
    untrained = override(RECIPES["none"](), {"corpus.name": name, "pretrain_on": ["beir:/nowhere"]})
    assert plan(untrained).stages == plan(override(untrained, {"pretrain_on": []})).stages


def test_all_that_is_derived_follows_the_middle_training_and_nothing_else_does(folders: Path) -> None:
    names = [f"beir:{folders}/there", f"beir:{folders}/more"]
    plain, both = (plan(recipe_on(folders, *read, recipe="rom")) for read in ([], names))
    one = plan(recipe_on(folders, names[0], recipe="cotmae"))
    assert both.corpus.fingerprint == plain.corpus.fingerprint and both.tokens.fingerprint == plain.tokens.fingerprint
    assert both.pretraining_tokens.inputs["like"].fingerprint == plain.tokens.fingerprint
    joined = both.pretraining_tokens.inputs["corpus"]
    assert joined.name == "join" and [step.config.short_name for step in joined.inputs.values()] == ["there", "more"]  # type: ignore[attr-defined]
    assert one.pretraining_tokens.inputs["corpus"].config.short_name == "there"  # type: ignore[attr-defined]
    assert both.pretrained is not None and one.pretrained is not None
    assert both.pretrained.inputs["weights"].inputs["tokens"] is both.pretraining_tokens
    assert one.pretrained.inputs["spans"].inputs["corpus"] is one.pretraining_tokens.inputs["corpus"]
    assert both.pretrained.inputs["corpus"] is both.corpus and both.pretrained.inputs["probed"] is both.tokens
    for stage in both.stages:
        assert stage.inputs["tokens"] is both.tokens and stage.inputs["corpus"] is both.corpus
    turned = plan(recipe_on(folders, *names[::-1], recipe="rom"))
    assert turned.pretraining_tokens.fingerprint != both.pretraining_tokens.fingerprint


class Kept(Silent):
    """Keeps what steps report."""

    def __init__(self) -> None:
        self.values: list[dict[str, float]] = []

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        self.values.append(values)


def pretrained(recipe: Recipe, store: Path, seen: Kept | None = None) -> tuple[Artifact, Artifact]:
    """(the middle training, the tokens that it was to read)."""
    recipe.check()
    steps, runner = plan(recipe), Runner(Place(str(store)), LOCAL, seen or Silent())
    assert steps.pretrained is not None
    return runner.run(steps.pretrained), load(steps.pretraining_tokens.place(runner.storage))


def passages(tokens: Artifact) -> tuple[list[str], list[list[int]]]:
    shards = sorted((tokens.place / "passages").local().iterdir())
    table = pa.concat_tables([pq.read_table(path) for path in shards])
    return table["doc_id"].to_pylist(), table["ids"].to_pylist()


def assert_read(run: Artifact, rows: list[list[int]]) -> None:
    """The rows that a run says it has read, by number and by CRC-32 of their tokens, are these."""
    trace = pq.read_table(run.place.local() / "trace.parquet").to_pylist()
    assert len(trace) == 2 and all(len(step["rows"]) == 16 for step in trace)
    for step in trace:
        digest = sum(zlib.crc32(np.array(rows[row], np.int32).tobytes(), row) for row in step["rows"])
        assert step["digest"] == digest


def test_a_middle_training_sees_only_the_other_collections_and_is_probed_on_the_corpus(folders: Path) -> None:
    names, seen = [f"beir:{folders}/there", f"beir:{folders}/more"], Kept()
    run, tokens = pretrained(recipe_on(folders, *names, **{"pretrain.probe_every": 1}), folders / "store", seen)
    doc_ids, rows = passages(tokens)
    assert doc_ids == [f"there/d{n}" for n in range(40)] + [f"more/d{n}" for n in range(30)]
    assert_read(run, rows)
    probed = [values["probe/RR_at_10"] for values in seen.values if "probe/RR_at_10" in values]
    assert len(probed) == 2 and 0 < min(probed) <= max(probed) <= 1
    alone, own = pretrained(recipe_on(folders, names[1]), folders / "store")
    assert_read(alone, passages(own)[1])
    with pytest.raises(AssertionError):
        assert_read(alone, rows)


@pytest.mark.parametrize("name", ["rom", "packed"])
def test_tokens_from_elsewhere_train_every_method_that_reads_passages(folders: Path, name: str) -> None:
    rows = [[7 + (row * step) % 40 for step in range(1, 9)] for row in range(50)]
    (folders / "given").mkdir()
    pq.write_table(pa.table({"token_ids": rows}), folders / "given/x.parquet")
    changes = {"objective.packing": True} if name == "packed" else {}
    recipe = recipe_on(folders, f"tokens:{folders}/given", recipe="mlm" if name == "packed" else name, **changes)
    run, tokens = pretrained(recipe, folders / "store")
    doc_ids, found = passages(tokens)
    assert [row[1:-1] for row in found] == rows and doc_ids[9] == "x.parquet:9"
    if name == "packed":
        assert run.result["rows_left_out"] == 50 * 10 // 24 % 16
    else:
        assert_read(run, found)
    moved = (folders / "given").rename(folders / "moved")
    again = plan(override(recipe, {"pretrain_on": [f"tokens:{moved}"]})).pretrained
    assert again is not None and again.fingerprint == run.fingerprint
