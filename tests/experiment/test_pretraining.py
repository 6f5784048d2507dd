"""The middle training's collections, and collections that are only searched or come back."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.core.config import override
from midmask.errors import UserError
from midmask.evaluation.groups import folders as names_of
from midmask.experiment.evaluations import with_averages, zero_shot, zero_shot_collections
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.recipes import RECIPES
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from tests.support.corpora.collections import json_lines, write, write_beir

AS_BEFORE = {"corpus": "d6ad6ab229978c14", "tokens": "67ccc9d52826e518", "pretrained": "15f6bb2ced067d52"}
"""Of `mlm` on `tiny` before there was `pretrain_on`, with the library versions below. They may change with the recipe's
own numbers or `graph.FORMAT`, and with nothing else.
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
    monkeypatch.setattr("midmask.experiment.graph.library_versions", lambda: {"torch": "2"})
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
    assert joined.name == "join" and [step.config.short_name for step in joined.inputs.values()] == ["there", "more"]
    assert one.pretraining_tokens.inputs["corpus"].config.short_name == "there"
    assert both.pretrained.inputs["weights"].inputs["tokens"] is both.pretraining_tokens
    assert one.pretrained.inputs["spans"].inputs["corpus"] is one.pretraining_tokens.inputs["corpus"]
    taught = plan(recipe_on(folders, *names, recipe="distil_vectors"))
    assert taught.pretrained.inputs["vectors"].inputs["tokens"].inputs["corpus"].fingerprint == joined.fingerprint
    for stage in both.stages:
        assert stage.inputs["tokens"] is both.tokens and stage.inputs["corpus"] is both.corpus
    turned = plan(recipe_on(folders, *names[::-1], recipe="rom"))
    assert turned.pretraining_tokens.fingerprint != both.pretraining_tokens.fingerprint


def pretrained(recipe: Recipe, store: Path) -> tuple[Artifact, Artifact]:
    """(the middle training, the tokens that it was to read)."""
    recipe.check()
    steps, runner = plan(recipe), Runner(Place(str(store)), LOCAL)
    return runner.compute(steps.pretrained), load(steps.pretraining_tokens.place(runner.storage))


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


def test_a_middle_training_sees_only_the_other_collections(folders: Path) -> None:
    names = [f"beir:{folders}/there", f"beir:{folders}/more"]
    run, tokens = pretrained(recipe_on(folders, *names), folders / "store")
    doc_ids, rows = passages(tokens)
    assert doc_ids == [f"there/d{n}" for n in range(40)] + [f"more/d{n}" for n in range(30)]
    assert_read(run, rows)
    alone, own = pretrained(recipe_on(folders, names[1]), folders / "store")
    assert_read(alone, passages(own)[1])
    with pytest.raises(AssertionError):
        assert_read(alone, rows)


def test_a_group_is_all_its_sets_in_official_splits_and_none_is_named_twice(tmp_path: Path) -> None:
    for name in names_of("beir13"):
        tiny(tmp_path / name)
    alone = tiny(tmp_path / "mine")
    (tmp_path / "scifact").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"beir13 in .*: 1 of 13 folders lack files. Missing: scifact"):
        zero_shot_collections([f"beir13:{tmp_path}"])
    with pytest.raises(UserError, match=r"'mine' is named already"):
        zero_shot_collections([f"beir:{alone}", f"beir:{alone}"])
    (tmp_path / "elsewhere").rename(tmp_path / "scifact")
    found = zero_shot_collections([f"beir:{alone}", f"beir13:{tmp_path}"])
    assert list(found) == ["mine", *names_of("beir13")]
    assert {corpus.splits for corpus in found.values()} == {"official"}


def test_the_test_queries_are_searched_by_the_model_that_was_trained_elsewhere(tmp_path: Path) -> None:
    recipe = override(RECIPES["none"](), {"corpus.name": f"beir:{tiny(tmp_path / 'here')}"})
    steps = plan(recipe)
    (evaluation,) = zero_shot(steps, recipe.evaluation, [f"beir:{tiny(tmp_path / 'there')}"]).values()
    searched = evaluation.inputs["ranked"].inputs
    assert evaluation.config.split == searched["queries"].config.split == "test"
    assert evaluation.inputs["corpus"].config.short_name == "there"
    assert searched["passages"].inputs["model"] is steps.stages[-1]
    assert searched["tokens"].inputs["like"] is steps.tokens


def test_an_average_counts_cqadupstack_once_and_keeps_what_all_sets_have() -> None:
    measured = {name: {"nDCG@10": 0.5, "R@100": 0.1} for name in names_of("beir14")}
    measured |= {name: {"nDCG@10": 0.08} for name in names_of("beir14") if name.startswith("cqadupstack/")}
    rows = with_averages(["beir14:/data", "beir:/data/mine"], {**measured, "mine": {"nDCG@10": 1.0}})
    assert rows.pop("beir14, average") == {"nDCG@10": pytest.approx((13 * 0.5 + 0.08) / 14)}
    assert rows == {**measured, "mine": {"nDCG@10": 1.0}}
