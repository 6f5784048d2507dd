"""What is prepared goes out as files, and comes in again as it was: through the steps that a recipe is made of."""

from pathlib import Path
from typing import Any

from midmask.artifact import Artifact, Place
from midmask.experiment.export import export
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.corpora.collections import json_lines, rows, write, write_beir


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
