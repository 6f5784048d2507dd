"""A plan that was told before anything was there, against what a tiny run really writes and takes."""

import random

import pytest

from midmask.core.config import override
from midmask.estimate import estimate, shape_named
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.recipes import RECIPES
from midmask.store.artifact import load
from midmask.store.place import Place
from tests.support.corpora.collections import json_lines, write

PASSAGES, QUERIES = 1500, 300
TOLERANCES = {"pretrain": 0.05, "finetune": 0.05, "encode": 0.05, "tokenise": 0.7, "prepare": 0.7, "search": 0.7}
"""Weights and vectors follow from shapes, beside a tokenizer of some 20 kB; what is compressed depends on the text."""


@pytest.fixture
def collection(tmp_path) -> str:
    """Passages of made-up words, the first of each being a query's."""
    folder, draw = tmp_path / "small", random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(800)]
    texts = [" ".join(draw.choices(words, k=draw.randint(15, 60))) for _ in range(PASSAGES)]
    write(
        folder / "corpus.jsonl",
        json_lines([{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)]),
    )
    write(folder / "queries.jsonl", json_lines([{"_id": f"q{n}", "text": texts[n][:40]} for n in range(QUERIES)]))
    for split, numbers in (("train", range(200)), ("dev", range(200, 250)), ("test", range(250, QUERIES))):
        rows = "".join(f"q{number}\td{number}\t1\n" for number in numbers)
        write(folder / "qrels" / f"{split}.tsv", f"query-id\tcorpus-id\tscore\n{rows}".encode())
    return f"beir:{folder}"


def test_a_run_writes_and_takes_what_was_told(collection, tmp_path, monkeypatch):
    changes = {"corpus.name": collection, "pretrain.steps": 6, "pretrain.batch_size": 8, "tokens.vocabulary_size": 600}
    changes |= {"stages.0.train.steps": 4, "stages.0.train.batch_size": 8, "pretrain.threads": 1}
    recipe = override(RECIPES["retromae"](), {**changes, "stages.0.train.threads": 1})
    storage, target = Place(str(tmp_path / "store")), plan(recipe).evaluation(recipe.evaluation)
    told = estimate([target], storage, shape_named("2xcpu"))
    Runner(storage, LOCAL).compute(target)

    for charge in told.charges:
        if charge.step.name in TOLERANCES:
            slack = 40_000 if charge.step.name in ("pretrain", "finetune") else 6_000
            real = charge.step.place(storage).size()
            assert charge.bytes == pytest.approx(real, rel=TOLERANCES[charge.step.name], abs=slack), charge.step.name
    (line,) = told.volumes
    assert int(line.split(": ")[1].split()[0].replace(",", "")) == pytest.approx(PASSAGES, rel=0.1)
    (charge,) = (one for one in told.charges if one.step.name == "pretrain")
    assert charge.tokens == pytest.approx(load(charge.step.place(storage)).result["tokens"], rel=0.25)

    monkeypatch.setattr("midmask.estimate.plan.LONG_ENOUGH", 0.0)
    done = estimate([target], storage)
    assert done.charges == () and done.total_hours == 0
    trained = [one.training for one in told.charges if one.training]
    seconds = [load(one.step.place(storage)).result["seconds"] for one in told.charges if one.training]
    rates = [one.flops / took for one, took in zip(trained, seconds, strict=True) if took]
    assert done.paces == 2
    assert min(rates) * 0.7 < done.shape.device.rate(bf16=False) < max(rates) * 1.3, "they tell this machine's rate"
