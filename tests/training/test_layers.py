"""Layers that are computed again, and compiled ones: the same gradients, less memory, the same weights' names."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MPNetConfig, MPNetForSequenceClassification

from midmask.artifact import Place
from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.encoders.cross_encoder import CrossEncoder, Template
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.estimate.counting import Counted, Row, count_training
from midmask.identity import identity_of
from midmask.kept import kept_tensors
from midmask.layers import COMPILERS, compile_layers, recompute_layers
from midmask.objectives import FINETUNING, PRETRAINING, Objective, build_objective
from midmask.objectives.sample import finetuning_batch, pretraining_batch, sample_vocabulary
from midmask.training.optimiser import TrainConfig
from tests.support.encoders.models import VARIANTS, random_model
from tests.support.training.runs import assert_same_run, run_here, run_workers, spec_of, trace_of

WORDS = sample_vocabulary(300)
ROWS, LENGTH = 4, 24


def built(method: str, **encoder: Any) -> tuple[Objective, Any]:
    """An objective on a small encoder with dropout, and a batch for it."""
    config = {**PRETRAINING, **FINETUNING}[method].Config()
    backbone = build_backbone(BackboneConfig(**{"name": "mini", "dropout": 0.1, **encoder}), WORDS, seed=0)
    objective = build_objective(config, backbone, WORDS, seed=0).train()
    if method in FINETUNING:
        return objective, finetuning_batch(WORDS, queries=ROWS, group=2, query=8, passage=LENGTH)
    return objective, pretraining_batch(config, WORDS, rows=ROWS, length=LENGTH)


def gradients(objective: Objective, batch: Any) -> tuple[dict[str, torch.Tensor], int]:
    """After one step, and the bytes that the forward pass kept for it."""
    torch.manual_seed(1)
    drawn = objective.draw(batch)
    state = torch.get_rng_state()
    objective(drawn).total(objective.counts(drawn)).backward()
    torch.set_rng_state(state)
    with kept_tensors(objective) as kept:
        objective(drawn).total(objective.counts(drawn))
    return {name: weight.grad for name, weight in objective.named_parameters() if weight.grad is not None}, kept.bytes


@pytest.mark.parametrize("name", ["mlm", "retromae", "condenser", "simcse", "contrastive"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_layers_computed_again_give_the_same_gradients_and_keep_less(name: str, precision: torch.dtype) -> None:
    found = []
    for again in (False, True):
        objective, batch = built(name)
        if again:
            recompute_layers(objective.backbone)
        with warnings.catch_warnings(), torch.autocast("cpu", precision, enabled=precision != torch.float32):
            warnings.simplefilter("error")
            found.append(gradients(objective, batch))
    (kept_all, much), (again_all, little) = found
    assert kept_all.keys() == again_all.keys() and little < 0.75 * much
    for key, gradient in kept_all.items():
        assert torch.equal(gradient, again_all[key]), key


@pytest.mark.parametrize("family", VARIANTS)
def test_layers_of_every_family_are_computed_again(family: str, tmp_path: Path) -> None:
    """ModernBERT's and DeBERTa's masks are not BERT's, DistilBERT's layers have another name."""
    random_model(family).save_pretrained(tmp_path)
    found = []
    for again in (False, True):
        backbone = load_backbone(tmp_path, dropout=0.1)
        words = sample_vocabulary(40)
        objective = build_objective(PRETRAINING["mlm"].Config(), backbone, words, seed=0).train()
        if again:
            recompute_layers(backbone)
        batch = pretraining_batch(PRETRAINING["mlm"].Config(), words, rows=ROWS, length=16)
        found.append(gradients(objective, batch))
    (kept_all, much), (again_all, little) = found
    assert little < much and all(torch.equal(again_all[key], gradient) for key, gradient in kept_all.items())


def test_a_further_layer_that_is_computed_again_keeps_its_input_alone(tmp_path: Path) -> None:
    kept = []
    for layers in (3, 4, 5):
        backbone = build_backbone(BackboneConfig(name="mini", dropout=0.1), WORDS, seed=0)
        config = backbone.model.config
        config.num_hidden_layers = layers
        config.save_pretrained(tmp_path)
        own = BackboneConfig(name=str(tmp_path), fresh=True)
        objective = build_objective(PRETRAINING["mlm"].Config(), build_backbone(own, WORDS, seed=0), WORDS, seed=0)
        recompute_layers(objective.backbone)
        config = PRETRAINING["mlm"].Config()
        kept.append(gradients(objective.train(), pretraining_batch(config, WORDS, rows=ROWS, length=LENGTH))[1])
    assert kept[1] - kept[0] == kept[2] - kept[1] == ROWS * LENGTH * objective.backbone.width * 4


def test_one_layer_counts_whole() -> None:
    kept = []
    for again in (False, True):
        objective, batch = built("mlm", name="tiny")
        if again:
            recompute_layers(objective.backbone)
        kept.append(gradients(objective, batch)[1])
    assert 0.5 * kept[0] < kept[1] < kept[0], "the second of two layers keeps its input, the first everything"


def test_an_estimate_knows_what_is_kept_and_what_is_computed_again() -> None:
    def counted(kind: str, *, recompute: bool) -> Counted:
        encoder, row = BackboneConfig(name="small", dropout=0.1), Row(64)
        config = PRETRAINING["mlm"].Config()
        return count_training(config, encoder, 500, Representation(), row, kind=kind, bf16=False, recompute=recompute)

    for kind in ("cpu", "cuda"):
        plain, again = (counted(kind, recompute=recompute) for recompute in (False, True))
        assert again.kept < 0.6 * plain.kept and again.parameters == plain.parameters
        assert 1.15 * plain.row < again.row < 4 / 3 * plain.row, "one layer is kept, the others are done once more"


def test_a_training_with_layers_computed_again_has_the_same_weights_and_losses(tokens: Place, tmp_path: Path) -> None:
    def run(name: str, **train: Any) -> tuple[list[Any], bytes]:
        run_here(spec_of(tokens, tmp_path / name, objective={"name": "retromae"}, train={"steps": 6, **train}))
        weights = (tmp_path / name / "model" / "model.safetensors").read_bytes()
        return [row["loss"] for row in trace_of(tmp_path / name)], weights

    assert run("kept") == run("again", recompute=True)


def test_layers_that_queries_have_for_themselves_are_not_computed_again() -> None:
    objective, _ = built("cotmote", experts="ffn")
    with pytest.raises(UserError, match=r"train\.recompute = true: queries have weights of their own"):
        recompute_layers(objective.backbone)


def test_a_model_whose_layers_transformers_does_not_name_is_refused() -> None:
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = MPNetForSequenceClassification(MPNetConfig(vocab_size=40, num_labels=1, **shape))
    scorer = CrossEncoder(model, Template((2,), (3,), (3,), None, 0), 32)
    for field, work in (("recompute", recompute_layers), ("compile", compile_layers)):
        with pytest.raises(UserError, match=rf"train\.{field} = true: .* no layers of a MPNetForSeq"):
            work(scorer)


def test_compiled_layers_are_another_training_of_the_same_weights() -> None:
    plain, compiled = (TrainConfig(steps=1, batch_size=1, learning_rate=1e-3, compile=value) for value in (False, True))
    assert "compile" not in identity_of(plain) and identity_of(compiled)["compile"] is True
    objective, batch = built("retromae")
    whole, _ = gradients(objective, batch)
    again, batch = built("retromae")
    compile_layers(again.backbone, backend="aot_eager")
    found, _ = gradients(again, batch)
    assert found.keys() == whole.keys() and list(again.state_dict()) == list(objective.state_dict())
    for key, gradient in whole.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-6, msg=key)


def test_without_a_compiler_compiling_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    objective, _ = built("mlm")
    with pytest.raises(UserError, match=f"needs a C.. compiler .{COMPILERS[0].replace('+', '.')}"):
        compile_layers(objective.backbone)


@pytest.mark.slow
def test_a_compiled_training_has_the_losses_of_one_that_is_not(tokens: Place, tmp_path: Path) -> None:
    losses = []
    for number, train in enumerate(({}, {"compile": True}, {"compile": True, "recompute": True})):
        out = tmp_path / str(number)
        run_here(spec_of(tokens, out, objective={"name": "retromae"}, train={"steps": 6, **train}))
        losses.append([row["loss"] for row in trace_of(out)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5) and losses[2] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.slow
def test_two_workers_with_layers_computed_again_are_one_without(tokens: Place, tmp_path: Path) -> None:
    def spec(name: str, **train: Any) -> dict[str, Any]:
        backbone = {"name": "tiny", "dropout": 0.0}
        return spec_of(tokens, tmp_path / name, backbone=backbone, objective={"name": "retromae"}, train=train)

    run_here(spec("one"))
    assert run_workers(spec("two", recompute=True, micro_batch=4), 2, tmp_path) == [0, 0]
    assert_same_run(trace_of(tmp_path / "two"), trace_of(tmp_path / "one"), within=1e-5)
