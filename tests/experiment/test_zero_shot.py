"""Collections that are only searched, averages of named groups, and a collection that goes out and comes in again."""

from pathlib import Path
from typing import Any

import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.evaluation.groups import folders
from midmask.experiment.export import export
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.experiment.zero_shot import collections, with_averages, zero_shot
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.corpora.collections import json_lines, rows, write, write_beir


def collection(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(f'{{"_id": "d", "title": "", "text": "a passage of {folder.name}"}}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    return folder


def test_a_group_is_all_its_sets_in_official_splits(tmp_path: Path) -> None:
    for name in folders("beir13"):
        collection(tmp_path / name)
    alone = collection(tmp_path / "mine")
    found = collections([f"beir:{alone}", f"beir13:{tmp_path}"])
    assert list(found) == ["mine", *folders("beir13")]
    assert {corpus.splits for corpus in found.values()} == {"official"}


def test_sets_that_are_not_there_and_labels_named_twice_are_refused(tmp_path: Path) -> None:
    for name in folders("beir13")[1:]:
        collection(tmp_path / name)
    with pytest.raises(UserError, match=r"beir13 in .*: 1 of 13 folders lack files. Missing: trec-covid"):
        collections([f"beir13:{tmp_path}"])
    with pytest.raises(UserError, match=r"'scifact' is named already"):
        collections([f"beir:{tmp_path}/scifact", f"beir:{tmp_path}/scifact"])
    with pytest.raises(UserError, match="unknown corpus format 'bier'"):
        collections([f"bier:{tmp_path}/scifact"])


def test_the_test_queries_are_searched_by_the_model_that_was_trained_elsewhere(tmp_path: Path) -> None:
    recipe = override(RECIPES["none"](), {"corpus.name": f"beir:{collection(tmp_path / 'here')}"})
    steps = plan(recipe)
    (evaluation,) = zero_shot(steps, recipe.evaluation, [f"beir:{collection(tmp_path / 'there')}"]).values()
    searched = evaluation.inputs["ranked"].inputs
    assert evaluation.config.split == searched["queries"].config.split == "test"
    assert evaluation.inputs["corpus"].config.short_name == "there"
    assert searched["passages"].inputs["model"] is steps.stages[-1]
    assert searched["tokens"].inputs["like"] is steps.tokens


def test_an_average_counts_cqadupstack_once_and_keeps_what_all_sets_have() -> None:
    measured = {name: {"nDCG@10": 0.5, "R@100": 0.1} for name in folders("beir14")}
    measured |= {name: {"nDCG@10": 0.08} for name in folders("beir14") if name.startswith("cqadupstack/")}
    rows = with_averages(["beir14:/data", "beir:/data/mine"], {**measured, "mine": {"nDCG@10": 1.0}})
    assert rows.pop("beir14, average") == {"nDCG@10": pytest.approx((13 * 0.5 + 0.08) / 14)}
    assert rows == {**measured, "mine": {"nDCG@10": 1.0}}


def recipe_on(folder: Path, **changes: Any) -> Recipe:
    small = {"tokens.vocabulary_size": 300, "spans.span_length": 12, "corpus.name": f"beir:{folder}"}
    return override(RECIPES["cotmae"](), {**small, **changes})


def spans_of(artifact: Artifact) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("doc_id", "number", "ids")} for row in rows(Path(f"{artifact.place}/spans"))]


def test_a_corpus_and_its_spans_go_out_and_come_in_again(tmp_path: Path) -> None:
    write_beir(tmp_path / "here")
    docs = [{"_id": f"d{n}", "text": f"This is {n}. It says that! There is more of it."} for n in range(40)]
    write(tmp_path / "here" / "corpus.jsonl", json_lines(docs))
    storage, out = Place(str(tmp_path / "store")), tmp_path / "out"
    runner = Runner(storage, LOCAL, Silent())
    steps = plan(recipe_on(tmp_path / "here"))
    cut = runner.run(steps.spans)
    export(steps, storage, Place(str(out)), [])
    assert not (out / "spans.jsonl.gz").exists()
    export(steps, storage, Place(str(out)), ["spans"])
    again = plan(recipe_on(out, **{"spans.source": f"file:{out}/spans.jsonl.gz"}))
    read = runner.run(again.spans)
    assert again.spans.fingerprint != steps.spans.fingerprint
    assert spans_of(read) == spans_of(cut) and len(spans_of(cut)) > 80
    assert read.result["given"] == {"lines": 40, "kept": 40}
    judged = [rows(Path(f"{step.place(storage)}/qrels.parquet")) for step in (steps.corpus, again.corpus)]
    assert judged[0] == judged[1]
