"""Health while training, against NumPy and collapses made on purpose."""

from typing import Any

import numpy as np
import pytest
import torch

from midmask.core.batch import Batch
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.objectives.pretraining.mlm import MLM
from midmask.store.place import Place
from midmask.training.examples import local_reader
from midmask.training.health import HealthWatch, cosine_of_random_pairs, examine
from midmask.training.run import run_training
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows
from tests.support.training.runs import setup_of, spec_of


def encoder(seed: int, *, dropout: float = 0.0) -> Backbone:
    return build_backbone(BackboneConfig(name="tiny", dropout=dropout), small_vocabulary(), seed=seed).double()


def logged_by(spec: dict[str, Any]) -> dict[str, float]:
    """The last value of everything that a run logs."""
    logged: dict[str, float] = {}
    run_training(setup_of(spec), Place(spec["out"]), local_reader, lambda _, values: logged.update(values))
    return logged


def test_the_cosine_of_random_pairs_equals_its_definition():
    vectors = torch.randn(9, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 2, 1, 1, 0.1, 0]) + 1
    rows = vectors.double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = [unit[i] @ unit[j] for i in range(9) for j in range(9) if i != j]
    assert float(cosine_of_random_pairs(vectors)) == pytest.approx(np.mean(cosines), abs=1e-6)


def test_examining_leaves_training_as_it_was():
    vocabulary = small_vocabulary()
    mlm = MLM(MLM.Config(), build_backbone(BackboneConfig(name="tiny", dropout=0.5), vocabulary, seed=1), vocabulary)
    batch = Batch(0, {"passage": token_rows(random_texts([9, 7, 4]))})
    state = torch.get_rng_state()
    first, second = examine(mlm.train(), batch), examine(mlm, batch)
    assert first == second, "dropout was on"
    assert mlm.training and torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in mlm.parameters())


def test_collapsed_vectors_are_named_once_with_their_step(caplog):
    vocabulary = small_vocabulary()
    mlm = MLM(MLM.Config(), build_backbone(BackboneConfig(name="tiny"), vocabulary, seed=1), vocabulary)
    batch = Batch(0, {"passage": token_rows(random_texts([9, 7, 4]))})
    watch = HealthWatch(steps=1000)
    watch.look(250, examine(mlm, batch))
    assert not watch.collapses
    norm = mlm.backbone.encoder.encoder.layer[-1].output.LayerNorm
    torch.nn.init.constant_(norm.weight, 1e-6)
    torch.nn.init.constant_(norm.bias, 1.0)
    for step in (150, 300, 400):
        watch.look(step, examine(mlm, batch))
    assert watch.collapses == {"vectors": 300}
    assert caplog.text.count("collapse of the vectors at step 300") == 1 and "step 400" not in caplog.text


@pytest.mark.parametrize(
    ("without_vector", "vocabulary", "step", "expected"),
    [(5.001, 0.5, 3000, {"decoder": 3000}), (5.001, 0.5, 1500, {}), (5.2, 0.5, 3000, {}),
     (5.2, 0.01, 3000, {"max-pool": 3000}), (5.2, 0.01, 1, {})],
)  # fmt: skip
def test_what_a_method_says_of_itself_is_judged(without_vector, vocabulary, step, expected):
    watch, values = HealthWatch(steps=10_000), {"cosine_of_random_pairs": 0.5}
    decoder = {"decoder_loss": 5.0, "decoder_loss_without_vector": without_vector}
    watch.look(step, {**values, **decoder, "winning_vocabulary": vocabulary})
    assert watch.collapses == expected


def test_health_is_reported_and_changes_nothing(tokens, tmp_path):
    seen: dict[str, dict[int, dict[str, float]]] = {}
    results = {}
    for name, fields in {"plain": {"health_every": 0}, "watched": {"health_every": 2}}.items():
        spec = spec_of(tokens, tmp_path / name, train={"steps": 6, "log_every": 4, **fields})
        log = seen.setdefault(name, {}).__setitem__
        results[name] = run_training(setup_of(spec), Place(spec["out"]), local_reader, log, device=torch.device("cpu"))
    told = {step: values for step, values in seen["watched"].items() if values}  # others tell only how far it is
    extra = {step: {name.split("/")[0] for name in values} - {"train"} for step, values in told.items()}
    assert extra == {2: {"health"}, 4: {"health"}, 6: {"health"}}
    assert {step for step, values in seen["plain"].items() if values} == {4, 6}
    assert results["plain"]["loss"] == results["watched"]["loss"]
