"""Rows at once that follow from a device's memory: they fit, fewer pieces would not, and the run is the same."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.objectives import CoupledObjective, Objective
from midmask.training.rehearsal import BESIDE_WEIGHTS, GIB, fit_micro_batch
from midmask.training.setup import TrainingSetup
from midmask.vocabulary import Vocabulary
from tests.support.estimate.counted import kept_bytes
from tests.support.training.runs import assert_same_run, run_here, run_workers, spec_of, trace_of
from tests.support.training.worker import setup_of

CPU = torch.device("cpu")
QUIET = {"name": "tiny", "dropout": 0.0}
COUPLED = ("simcse", "contrastive")


def spec(tokens: Place, corpus: Place, out: Path, kind: str, **train: Any) -> dict[str, Any]:
    steps = {"steps": 10, "learning_rate": 3e-4, **train}
    if kind == "contrastive":
        changes = {"kind": "finetune", "objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
        return spec_of(tokens, out, backbone=QUIET, train=steps, **changes)
    backbone = {**QUIET, "dropout": 0.1} if kind == "simcse" else QUIET
    return spec_of(tokens, out, backbone=backbone, train=steps, objective={"name": kind})


def fitted(setup: TrainingSetup, room: float) -> int | None:
    """With so many bytes for what the forward pass keeps."""
    _, objective, vocabulary = setup.build()
    limit = (room + (4 + BESIDE_WEIGHTS) * sum(parameter.numel() for parameter in objective.parameters())) / GIB
    limited = setup.__class__(**{**vars(setup), "train": setup.train.model_copy(update={"memory_gib": limit})})
    return fit_micro_batch(objective.train(), limited, vocabulary, CPU)


def kept(setup: TrainingSetup, objective: Objective, words: Vocabulary, rows: int) -> int:
    batch = setup.longest_rows(rows, words)
    return kept_bytes(objective, lambda: objective(objective.draw(batch)))


def cached(setup: TrainingSetup, objective: Objective, words: Vocabulary, rows: int) -> int:
    """Bytes of all rows' vectors and of their gradients."""
    assert isinstance(objective, CoupledObjective)
    with torch.no_grad():
        made = objective.represent(objective.draw(setup.longest_rows(rows, words)))
    return 2 * sum(vector.nbytes for vector in made.vectors)


@pytest.mark.parametrize("kind", ["dupmae", "contrastive"])
def test_what_is_said_to_fit_does_and_in_fewer_pieces_it_would_not(tokens, corpus, tmp_path, kind):
    setup = setup_of(spec(tokens, corpus, tmp_path, kind))
    _, objective, words = setup.build()
    objective.train()
    share = setup.train.batch_size
    needs = {rows: kept(setup, objective, words, rows) for rows in (1, 4, 5, 7, 8, 12, share)}
    assert fitted(setup, 1.2 * needs[share]) is None, "the whole share fits"
    for rows in (5, 7, 12):
        room = 1.005 * needs[rows]
        micro_batch = fitted(setup, room)
        beside = cached(setup, objective, words, share) if kind in COUPLED else 0
        assert kept(setup, objective, words, micro_batch) + beside <= room
        pieces = -(-share // micro_batch)
        assert pieces <= -(-share // rows) + (kind in COUPLED), "what is cached takes room too"
    with pytest.raises(UserError, match=r"one row of the training keeps .* GiB beside the weights, and there are"):
        fitted(setup, 0.5 * needs[1])


@pytest.mark.parametrize("kind", COUPLED)
def test_vectors_of_all_rows_lie_beside_what_a_piece_keeps(tokens, corpus, tmp_path, kind):
    """Half of the share would fit to the byte, if nothing else were there."""
    setup = setup_of(spec(tokens, corpus, tmp_path, kind))
    _, objective, words = setup.build()
    half = setup.train.batch_size // 2
    room = 1.00005 * kept(setup, objective.train(), words, half)
    assert cached(setup, objective, words, 2 * half) > 0.00005 * room
    assert fitted(setup, room) < half


def test_what_is_kept_once_is_not_reckoned_for_each_row(tokens, corpus, tmp_path):
    """The gradient of the output matrix, which is as large as some rows of eight tokens."""
    setup = replace(setup_of(spec(tokens, corpus, tmp_path, "mlm")), longest=8)
    _, objective, words = setup.build()
    assert -(-setup.train.batch_size // fitted(setup, 1.1 * kept(setup, objective.train(), words, 12))) == 2


def test_runs_in_less_memory_and_workers_that_agree_on_a_number_are_the_same_run(tokens, corpus, tmp_path, caplog):
    """Shares of 15 rows, and of 8 and 7; the loss meets all rows, so that both workers must cut or none."""

    def sized(name: str, **train: Any) -> dict[str, Any]:
        return spec(tokens, corpus, tmp_path / name, "contrastive", batch_size=15, **train)

    setup = setup_of(sized("unused"))
    _, objective, words = setup.build()
    parameters = sum(parameter.numel() for parameter in objective.parameters())
    limit = ((4 + BESIDE_WEIGHTS) * parameters + 1.2 * kept(setup, objective.train(), words, 5)) / GIB
    run_here(sized("whole"))
    assert "train.micro_batch" not in caplog.text
    with caplog.at_level(logging.INFO):
        run_here(sized("little", memory_gib=limit))
    assert "of 15 rows at once, which is what fits into memory" in caplog.text
    assert run_workers(sized("two", memory_gib=limit), 2, tmp_path) == [0, 0]
    for name in ("little", "two"):
        assert_same_run(trace_of(tmp_path / name), trace_of(tmp_path / "whole"), within=1e-4)
