"""The program for a GPU in its CPU form: it runs where little is installed, and notices a number that differs."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from midmask.objectives import FINETUNING, PRETRAINING
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views
from tests.gpu import __main__ as program
from tests.gpu.cases import all_cases
from tests.gpu.numbers import CPU
from tests.gpu.search import search
from tests.support.corpora.collections import write_beir
from tests.support.gpu.bare import BLOCKED, run, run_text

PLANNED = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from midmask.experiment.plan import plan
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
recipe = override(RECIPES["retromae"](), {{"corpus.name": {corpus!r}}})
print(plan(recipe).evaluation(recipe.evaluation).inputs["ranked"].name in LOCAL)
"""


def test_a_recipe_is_planned_without_what_trackers_clusters_and_searches_need(tmp_path: Path) -> None:
    write_beir(tmp_path)
    outcome = run_text(PLANNED.format(blocked=BLOCKED, corpus=f"beir:{tmp_path}"))
    assert outcome.returncode == 0 and outcome.stdout == "True\n", outcome.stderr[-2000:]


def test_all_parts_run_without_a_gpu_and_without_ray_or_faiss() -> None:
    outcome = run("tests.gpu", "--cpu", "--methods", "mlm")
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    rows = [line.strip("| ").split(" | ") for line in outcome.stdout.splitlines() if line.startswith("| ")]
    names = {name for name, *_, passed in rows if passed == "yes"}
    assert {name for kind in ("draw", "objective") for name in (f"{kind} mlm", f"{kind} generation")} <= names
    for method in (*PRETRAINING, *FINETUNING):
        assert any(name.startswith(f"objective {method}") for name in names)
    assert [row[1:3] for row in rows if row[0] == "mlm"] == [[at, how] for how in ("no", "yes") for at in ("16", "32")]
    assert [row[0] for row in rows if row[0] in program.SYSTEMS] == [*program.SYSTEMS]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_number_that_differs_on_the_device_fails_the_program(
    precision: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, other = itertools.islice(all_cases(), 2)

    def disturbed(where):  # type: ignore[no-untyped-def]
        found = dict(other.compute(where))
        return found | {"logits": found["logits"] * (1.5 if where.precision == precision else 1.0)}

    monkeypatch.setattr(program, "all_cases", lambda: [whole, other])
    assert program.main(["--cpu", "--part", "parity"]) == 0
    monkeypatch.setattr(program, "all_cases", lambda: [whole, replace(other, compute=disturbed)])
    assert program.main(["--cpu", "--part", "parity"]) == 1
    assert capsys.readouterr().out.count("**no**") == 1


@pytest.mark.parametrize("kind", ["dense", "lexical", "both"])
def test_a_search_over_blocks_equals_a_sort_of_all_scores(kind: str) -> None:
    draw = np.random.default_rng(1)
    tables = {name: draw.standard_normal((rows, 12)).astype(np.float32) for name, rows in (("q", 5), ("p", 30))}
    sparse = {name: np.where(table > 0.5, table, 0) for name, table in tables.items()}
    used = [part for part, other in ((tables, "lexical"), (sparse, "dense")) if kind != other]
    views = [
        Views(
            None if kind == "lexical" else tables[one], None if kind == "dense" else SparseRows.top(sparse[one], None)
        )
        for one in ("q", "p")
    ]
    scores = sum(part["q"].astype(np.float64) @ part["p"].T.astype(np.float64) for part in used)
    found, rows = search(*views, 9, CPU.device, torch.float64, block=7)
    np.testing.assert_allclose(found.numpy(), -np.sort(-scores, axis=1)[:, :9], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.take_along_axis(scores, rows.numpy(), 1), found.numpy(), rtol=1e-6, atol=1e-9)
