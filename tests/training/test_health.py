"""The guard against forgetting, in float64; health while training, against NumPy and collapses made on purpose."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from midmask.core.batch import Batch
from midmask.core.config import override
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.objectives import PRETRAINING, build_objective
from midmask.objectives.pretraining.mlm import MLM
from midmask.recipes import RECIPES
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary
from midmask.training.examples import local_reader
from midmask.training.health import DISTANCE, Guard, HealthWatch, cosine_of_random_pairs, examine
from midmask.training.loop import accumulate, prepare_model
from midmask.training.run import run_training
from tests.support.benchmark.tiny import Unread
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows
from tests.support.training.cut import batch, config, cut, gradients
from tests.support.training.runs import Stopped, run_here, setup_of, spec_of

WEIGHT = 3.0
PAIRS = batch("cocondenser")
PASSAGES = Batch(0, {"passage": PAIRS.texts["passage"]})


def encoder(seed: int, *, dropout: float = 0.0) -> Backbone:
    return build_backbone(BackboneConfig(name="tiny", dropout=dropout), small_vocabulary(), seed=seed).double()


def distance(before: Backbone, after: Backbone, rows: Batch) -> list[float]:
    """1 - cosine of each passage, text by text, without padding."""
    text, found = rows.texts["passage"], []
    for ids, length in zip(text.ids_BL, text.lengths_B, strict=True):
        one = (ids[None, :length], length[None])
        with torch.no_grad():
            start, end = (each.eval().hidden(*one)[0, 0].numpy().astype(np.float64) for each in (before, after))
        found.append(1 - start @ end / np.linalg.norm(start) / np.linalg.norm(end))
    return found


def test_the_distance_is_one_minus_the_cosine_of_both_vectors():
    rows = Batch(0, {"passage": token_rows(random_texts([9, 14, 5]))})
    guard = Guard(encoder(1, dropout=0.5).train(), WEIGHT)
    assert Guard(encoder(1), 0.0).loss(encoder(2), rows) == {}, "without a weight it only measures"
    found = guard.distances(encoder(2), rows.texts["passage"])
    assert found.tolist() == pytest.approx(distance(encoder(1), encoder(2), rows), abs=1e-6)
    assert guard.distances(encoder(1), rows.texts["passage"]).tolist() == pytest.approx([0, 0, 0], abs=1e-6)


@pytest.mark.parametrize(("name", "size"), [("retromae", 7), ("retromae", 3), ("cocondenser", 7), ("cocondenser", 3)])
def test_it_adds_its_mean_to_any_loss_however_the_batch_is_cut(name, size):
    rows, own, start = PAIRS if name == "cocondenser" else PASSAGES, encoder(2), encoder(1)
    method = build_objective(PRETRAINING[name].Config(), own, small_vocabulary(), seed=5).double().train()
    plain, _ = accumulate(prepare_model(method), method, config(size), cut(rows, size), ())
    without = gradients(method)
    model = prepare_model(method, Guard(start, WEIGHT))
    sums, counts = accumulate(model, method, config(size), cut(rows, size), ())
    found = gradients(method)

    far = distance(encoder(1), own, rows)
    assert sums[-1].item() == pytest.approx(sum(far), rel=1e-5) and counts[-1] == len(far)
    assert (sums[0] - plain[0]).item() == pytest.approx(WEIGHT * np.mean(far), rel=1e-5)
    expected = _gradient_of_distance(start, own.train(), rows)
    for key, gradient in found.items():
        added = WEIGHT * expected.get(key, torch.zeros_like(gradient))
        torch.testing.assert_close(gradient - without[key], added, atol=1e-6, rtol=1e-3)


def _gradient_of_distance(before: Backbone, after: Backbone, rows: Batch) -> dict[str, torch.Tensor]:
    text = rows.texts["passage"]
    with torch.no_grad():
        start_BD = before.eval().hidden(text.ids_BL, text.lengths_B)[:, 0]
    end_BD = after.hidden(text.ids_BL, text.lengths_B)[:, 0]
    norms_B = start_BD.norm(dim=1) * end_BD.norm(dim=1)
    (1 - (start_BD * end_BD).sum(1) / norms_B).mean().backward()
    return {f"backbone.{name}": value for name, value in gradients(after).items()}


def spec(tokens: Place, out: Path, folder: Path, weight: float) -> dict[str, Any]:
    train = {"steps": 6, "health_every": 6, "checkpoint_every": 3}
    return spec_of(tokens, out, train=train, backbone={"name": str(folder), "dropout": 0.1}, self_distillation=weight)


def logged_by(spec: dict[str, Any]) -> dict[str, float]:
    """The last value of everything that a run logs."""
    logged: dict[str, float] = {}
    run_training(setup_of(spec), Place(spec["out"]), local_reader, lambda _, values: logged.update(values))
    return logged


def test_a_run_with_it_stays_near_its_start_and_goes_on_after_a_kill(tokens, tmp_path):
    folder, tokenizer = tmp_path / "start", (tokens / "tokenizer").local()
    build_backbone(BackboneConfig(), Vocabulary.of(tokenizer), seed=1).save(folder, tokenizer)
    moved = {}
    for weight in (0.0, 20.0):
        logged = logged_by(spec(tokens, tmp_path / f"{weight}", folder, weight))
        moved[weight] = logged[f"health/{DISTANCE}"]
        assert (f"train/{DISTANCE}" in logged) == bool(weight)
    assert 0 < moved[20.0] < moved[0.0] / 2

    cut_off = spec(tokens, tmp_path / "cut", folder, 20.0)
    with pytest.raises(Stopped):
        run_here(cut_off, stop_at=4)
    run_here(cut_off)
    weights = [safetensors.torch.load_file(tmp_path / name / "model" / "model.safetensors") for name in ("20.0", "cut")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert f"part/{DISTANCE}" in pq.read_table(tmp_path / "cut" / "trace.parquet").column_names


def test_it_belongs_to_the_training_and_its_fingerprint():
    minilm = override(RECIPES["retromae"](), {"backbone.name": "minilm"})
    some = override(minilm, {"self_distillation": 0.5})
    steps = [plan(recipe, Unread()).pretrained for recipe in (minilm, some)]
    assert steps[0].fingerprint != steps[1].fingerprint and steps[1].config.self_distillation == 0.5
    with pytest.raises(UserError, match=r"self_distillation = 0\.5 needs a middle training that begins with"):
        override(some, {"backbone.fresh": True})


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
