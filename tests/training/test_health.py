"""Health while training: its numbers against NumPy, collapses that are made on purpose, and the probe."""

import numpy as np
import pytest
import torch

from midmask.artifact import Place
from midmask.batch import Batch
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives.pretraining.mlm import MLM
from midmask.training.health import HealthWatch, examine, spread
from midmask.training.probe import open_probe
from midmask.training.run import local_reader, run_training
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows
from tests.support.training.runs import spec_of
from tests.support.training.worker import setup_of


def test_spread_equals_its_definition():
    vectors = torch.randn(9, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 2, 1, 1, 0.1, 0]) + 1
    found = {name: float(value) for name, value in spread(vectors).items()}
    rows = vectors.double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = [unit[i] @ unit[j] for i in range(9) for j in range(9) if i != j]
    eigenvalues = np.linalg.eigvalsh(np.cov(rows.T))
    assert found["cosine_of_random_pairs"] == pytest.approx(np.mean(cosines), abs=1e-6)
    assert found["active_dimensions"] == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum(), rel=1e-5)


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
    watch, values = HealthWatch(steps=10_000), {"cosine_of_random_pairs": 0.5, "active_dimensions": 10.0}
    decoder = {"decoder_loss": 5.0, "decoder_loss_without_vector": without_vector}
    watch.look(step, {**values, **decoder, "winning_vocabulary": vocabulary})
    assert watch.collapses == expected


def test_the_probe_ranks_relevant_passages(tokens, corpus):
    """With queries that are their own passages every rank is 1; with an encoder that sees nothing, chance."""
    assert open_probe(tokens, corpus, "test") is None, "it has no queries"
    probe = open_probe(tokens, corpus, "train")
    assert 0 < len(probe.queries) <= 200
    backbone = build_backbone(BackboneConfig(name="tiny"), small_vocabulary(2000), seed=1)
    for query, rows in enumerate(probe.relevant):
        probe.queries[query] = probe.passages[rows[0]]
    assert probe.reciprocal_rank(backbone, 0, torch.device("cpu")) > 0.9
    for parameter in backbone.parameters():
        torch.nn.init.zeros_(parameter)
    assert probe.reciprocal_rank(backbone, 0, torch.device("cpu")) < 0.2
    assert backbone.training


def test_health_and_probe_are_reported_and_change_nothing(tokens, corpus, tmp_path):
    seen: dict[str, dict[int, dict[str, float]]] = {}
    results = {}
    for name, fields in {"plain": {"health_every": 0}, "watched": {"health_every": 2, "probe_every": 3}}.items():
        spec = spec_of(tokens, tmp_path / name, train={"steps": 6, "log_every": 4, **fields}, corpus=str(corpus))
        log = seen.setdefault(name, {}).__setitem__
        results[name] = run_training(setup_of(spec), Place(spec["out"]), local_reader, log, device=torch.device("cpu"))
    told = {step: values for step, values in seen["watched"].items() if values}  # others tell only how far it is
    extra = {step: {name.split("/")[0] for name in values} - {"train"} for step, values in told.items()}
    assert extra == {2: {"health"}, 3: {"probe"}, 4: {"health"}, 6: {"health", "probe"}}
    assert {step for step, values in seen["plain"].items() if values} == {4, 6}
    assert results["plain"]["loss"] == results["watched"]["loss"]
