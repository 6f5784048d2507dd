"""Whole training runs: cut in any way, killed anywhere, they are the same run; a damaged checkpoint is refused. Heads
and experts lie beside the model, the next run takes what fits; a fresh MLM head's bias begins with counts.
"""

import json
import logging
import math
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray

from midmask.core.config import override
from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.encoders.experts import FILE
from midmask.encoders.representation import Side
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from midmask.retrieve.blocks import token_rows
from midmask.retrieve.encode import Encode, EncodeConfig
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from midmask.training import checkpoint
from midmask.training.examples import local_reader
from midmask.training.run import NonFiniteLoss, run_training
from midmask.training.setup import unigram_log_probabilities
from tests.support.benchmark.tiny import write_collection
from tests.support.training.fixtures import artifacts
from tests.support.training.runs import Stopped, assert_same_run, run_here, setup_of, spec_of, spoil, trace_of


@pytest.fixture(scope="module")
def whole(tokens, tmp_path_factory) -> Path:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    run_here(spec_of(tokens, out))
    return out


def test_training_learns_and_leaves_a_clean_artifact(whole):
    trace = trace_of(whole)
    assert np.mean([row["loss"] for row in trace[-5:]]) < trace[0]["loss"] - 0.3
    epochs = [[row["rows"] for row in trace if row["epoch"] == epoch] for epoch in (0, 1)]
    assert len(epochs[0]) == 300 // 16 and epochs[0][:5] != epochs[1][:5]
    assert sorted(path.name for path in whole.iterdir()) == ["checkpoint", "model", "trace.parquet"]


def test_a_job_stopped_again_and_again_is_the_same_run(tokens, whole, tmp_path):
    for stop_at in (5, 7, 15, 16):  # before the first checkpoint, just before it is written, and after two of them
        with pytest.raises(Stopped):
            run_here(spec_of(tokens, tmp_path), stop_at=stop_at)
    result = run_here(spec_of(tokens, tmp_path))
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=1e-5)
    assert [row["step"] for row in trace_of(tmp_path) if row["first_after_start"]] == [0, 7, 14]
    for name in ("model/model.safetensors", "checkpoint/optimiser.safetensors"):
        ours, theirs = (safetensors.torch.load_file(folder / name) for folder in (tmp_path, whole))
        for key, tensor in theirs.items():
            assert torch.equal(ours[key], tensor), key
    assert run_here(spec_of(tokens, tmp_path)) == result, "a finished run, called again"


def test_prefixes_one_after_the_other_are_the_whole_run(tokens, whole, tmp_path):
    for number, stop in enumerate([8, None]):
        before = {"resume": str(tmp_path / str(number - 1))} if number else {}
        run_here(spec_of(tokens, tmp_path / str(number), stop_after=stop, **before))
    assert len(trace_of(tmp_path / "0")) == 8
    assert_same_run(trace_of(tmp_path / "1"), trace_of(whole), within=1e-5)


def test_the_newest_checkpoints_are_kept_and_a_half_written_one_is_not_used(tokens, whole, tmp_path):
    spec = spec_of(tokens, tmp_path)
    with pytest.raises(Stopped):
        run_here(spec, stop_at=29)
    kept = sorted((tmp_path / "checkpoints").iterdir())
    assert [path.name for path in kept] == ["step-00000021", "step-00000028"]
    newest = kept[-1]
    position = json.loads((newest / "position.json").read_text())
    assert position["step"] == 28 and position["threads"] == 1 and position["epoch"] == 1
    (newest / "position.json").unlink()
    (newest / "objective.safetensors").write_bytes(b"half")
    run_here(spec)
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=1e-5)


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_reports_cover_every_step_and_change_no_value(tokens, whole, tmp_path, monkeypatch, every):
    """Slow steps tell how far they are; that, the interval and checkpoints change nothing."""
    monkeypatch.setattr("midmask.training.run.TELLS_EVERY_S", every)
    reports = []
    setup = setup_of(spec_of(tokens, tmp_path, train={"log_every": 12, "checkpoint_every": 100}))
    run_training(setup, Place(str(tmp_path)), local_reader, lambda done, values: reports.append((done, values)))
    assert [done for done, _ in reports] == ([1, 12, 24, 30] if every else list(range(1, 31)))
    assert_same_run(trace_of(tmp_path), trace_of(whole), within=0.0)
    losses = [row["loss"] for row in trace_of(whole)]
    told = {done: values for done, values in reports if values}
    assert list(told) == [12, 24, 30]
    for values, part in zip(told.values(), (losses[:12], losses[12:24], losses[24:]), strict=True):
        assert values["train/loss"] == pytest.approx(np.mean(part), rel=1e-4)
        assert values["train/mlm"] == pytest.approx(values["train/loss"])


def test_a_killed_distillation_goes_on_to_the_same_bits(tokens, vectors, tmp_path):
    train = {"steps": 8, "checkpoint_every": 3, "micro_batch": 5}
    spec = {"objective": {"name": "distil_vectors"}, "vectors": str(vectors), "train": train}
    run_here(spec_of(tokens, tmp_path / "whole", **spec))
    with pytest.raises(Stopped):
        run_here(spec_of(tokens, tmp_path / "killed", **spec), stop_at=5)
    run_here(spec_of(tokens, tmp_path / "killed", **spec))
    assert_same_run(trace_of(tmp_path / "killed"), trace_of(tmp_path / "whole"), within=0.0)
    for name in ("model/model.safetensors", "model/heads.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_loss_that_is_not_finite_stops_the_run(tokens, tmp_path):
    run_here(spec_of(tokens, tmp_path / "good", stop_after=10))
    spoil(tmp_path / "good" / "checkpoint")
    spec = spec_of(tokens, tmp_path / "out", resume=str(tmp_path / "good"), train={"log_every": 5})
    with pytest.raises(NonFiniteLoss) as error:
        run_here(spec)
    assert str(error.value).startswith("step 10: loss") and f"{tmp_path}/good/checkpoint" in str(error.value)
    assert not (tmp_path / "out" / "checkpoints").exists(), "spoiled weights were saved"


def test_a_checkpoint_of_another_run_is_refused(tokens, tmp_path):
    run_here(spec_of(tokens, tmp_path / "one", stop_after=5))
    resume = {"resume": str(tmp_path / "one"), "stop_after": 6}
    with pytest.raises(UserError, match="belongs to another run"):
        run_here(spec_of(tokens, tmp_path / "two", **resume, train={"seed": 1}))


def test_a_killed_run_goes_on_with_the_same_dropout_and_does_not_report_a_part_without_a_target(tokens, tmp_path):
    """SimCSE lives on dropout; its masks are a function of the step, in both passes of the cache. It has no MLM term
    here, and a loss of 0 would look as if it were solved."""
    spec = {"objective": {"name": "simcse"}, "train": {"steps": 8, "checkpoint_every": 3, "micro_batch": 5}}
    result = run_here(spec_of(tokens, tmp_path / "whole", **spec))
    with pytest.raises(Stopped):
        run_here(spec_of(tokens, tmp_path / "killed", **spec), stop_at=5)
    run_here(spec_of(tokens, tmp_path / "killed", **spec))
    assert_same_run(trace_of(tmp_path / "killed"), trace_of(tmp_path / "whole"), within=1e-6)
    assert set(result["parts"]) == {"contrastive"}
    assert {row["part/mlm"] for row in trace_of(tmp_path / "whole")} == {None}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def parts() -> tuple[torch.nn.Linear, torch.optim.AdamW]:
    module = torch.nn.Linear(3, 2)
    return module, torch.optim.AdamW(module.parameters())


@pytest.fixture
def saved(tmp_path) -> Path:
    module, optimiser = parts()
    module(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    for step in (5, 10):
        checkpoint.save(Place(str(tmp_path / checkpoint.step_name(step))), module, optimiser, {"step": step})
    return tmp_path


DAMAGE = [(checkpoint.OBJECTIVE, flip), (checkpoint.OPTIMISER, cut), (checkpoint.OBJECTIVE, os.unlink)]


@pytest.mark.parametrize(("name", "harm"), [*DAMAGE, (checkpoint.POSITION, cut)])
def test_damage_is_one_line(saved, name, harm):
    newest = checkpoint.newest(Place(str(saved)))
    assert checkpoint.load(newest, *parts())["step"] == 10
    harm(Path(newest.uri) / name)
    with pytest.raises(UserError, match=f"{name} is damaged.*Delete {newest} and run the same command again"):
        checkpoint.load(newest, *parts())
    newest.delete()
    assert checkpoint.load(checkpoint.newest(Place(str(saved))), *parts())["step"] == 5


TENSORS = 16
"""Of RetroMAE's one decoder layer: six linear layers and two norms, weight and bias each."""


@pytest.fixture(scope="module")
def trained(tokens, tmp_path_factory) -> Path:
    """RetroMAE after 8 steps, its decoder away from its fresh weights."""
    out = tmp_path_factory.mktemp("trained")
    result = run_here(spec_of(tokens, out, objective={"name": "retromae"}, train={"steps": 8}))
    assert (result["heads_taken"], result["heads_fresh"]) == (0, TENSORS)
    return out


def going_on(tokens: Place, out: Path, folder: Path, objective: dict[str, Any], **train: Any) -> dict[str, Any]:
    backbone = {"name": str(folder / "model"), "dropout": 0.0}
    return spec_of(tokens, out, objective=objective, backbone=backbone, train={"steps": 3, **train})


def heads_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model" / "heads.safetensors")


def taken(result: dict[str, Any]) -> tuple[int, int]:
    return result["heads_taken"], result["heads_fresh"]


def test_going_on_with_the_same_method_begins_where_it_ended(tokens, trained, tmp_path):
    """A learning rate of next to nothing: the first losses of a run that goes on, twice, are those of the end."""
    retromae = {"name": "retromae"}
    first = run_here(going_on(tokens, tmp_path / "a", trained, retromae, learning_rate=1e-30))
    assert taken(first) == taken(run_here(going_on(tokens, tmp_path / "b", tmp_path / "a", retromae))) == (TENSORS, 0)
    one, other = trace_of(tmp_path / "a")[0], trace_of(tmp_path / "b")[0]
    assert one["rows"] == other["rows"] and one["loss"] == other["loss"]
    for name, tensor in heads_of(trained).items():
        assert torch.equal(tensor, heads_of(tmp_path / "a")[name]), name


@pytest.mark.parametrize(
    ("objective", "expected"),
    [({"name": "dupmae", "query_stream": "paper"}, (TENSORS, 0)), ({"name": "mlm"}, (0, 0)),
     ({"name": "retromae", "decoding": "basic", "decoder_layers": 2}, (TENSORS, TENSORS))],
)  # fmt: skip
def test_another_method_takes_what_fits(objective, expected, tokens, trained, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    assert taken(run_here(going_on(tokens, tmp_path, trained, objective, learning_rate=1e-30))) == expected
    assert (f"heads: {expected[0]} tensors taken over, {expected[1]} fresh" in caplog.text) == (expected[0] > 0)
    if expected[0]:
        one, other = (heads_of(folder)["decoder.0.feed_in.weight"] for folder in (tmp_path, trained))
        assert torch.equal(one, other)


def test_heads_that_are_missing_or_of_another_width_or_not_wanted_are_fresh(tokens, trained, tmp_path):
    retromae, folder = {"name": "retromae"}, tmp_path / "mini"
    run_here(spec_of(tokens, folder, backbone={"name": "mini"}, train={"steps": 1}))
    assert not (folder / "model" / "heads.safetensors").exists()
    assert taken(run_here(going_on(tokens, tmp_path / "none", folder, retromae, steps=1))) == (0, TENSORS)
    shutil.copy(trained / "model" / "heads.safetensors", folder / "model")
    assert taken(run_here(going_on(tokens, tmp_path / "wide", folder, retromae, steps=1))) == (0, TENSORS)
    (folder / "model" / "heads.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match=r"heads.safetensors: no heads can be read there"):
        run_here(going_on(tokens, tmp_path / "half", folder, retromae))
    backbone = {"name": str(trained / "model"), "fresh": True}
    spec = spec_of(tokens, tmp_path / "fresh", objective=retromae, backbone=backbone, train={"steps": 1})
    assert taken(run_here(spec)) == (0, TENSORS)


def test_heads_are_part_of_a_folders_identity(trained, tmp_path):
    folder = shutil.copytree(trained / "model", tmp_path / "model")
    places = {"corpus.name": write_collection(tmp_path / "tiny"), "backbone.name": str(folder)}
    recipe = override(RECIPES["retromae"](), places)
    before = plan(recipe).pretrained
    safetensors.torch.save_file({"decoder.0.query.bias": torch.zeros(128)}, folder / "heads.safetensors")
    assert before.fingerprint != plan(recipe).pretrained.fingerprint


def test_shares_are_those_of_the_passages_without_special_tokens(tokens):
    vocabulary = Vocabulary.of((tokens / "tokenizer").local())
    counts: Counter[int] = Counter()
    for name in (tokens / "passages").names():
        for row in pq.read_table((tokens / "passages" / name).uri)["ids"].to_pylist():
            counts.update(row)
    special = set(vocabulary.special_V.nonzero().flatten().tolist())
    expected = [1 if token in special else 1 + counts[token] for token in range(vocabulary.size)]
    found = unigram_log_probabilities(tokens, vocabulary)
    assert found.dtype == torch.float32 and found.exp().sum().item() == pytest.approx(1, abs=1e-5)
    for token, count in enumerate(expected):
        assert found[token].item() == pytest.approx(math.log(count / sum(expected)), rel=1e-5)


@pytest.mark.parametrize("bias", ["zero", "unigram"])
def test_only_a_head_that_was_missing_begins_with_them(bias, tokens, tmp_path):
    tokenizer, without_head = (tokens / "tokenizer").local(), str(tmp_path)
    vocabulary = Vocabulary.of(tokenizer)
    build_backbone(BackboneConfig(), vocabulary, seed=1).encoder.save_pretrained(tmp_path)
    load_tokenizer(tokenizer).save_pretrained(tmp_path)
    for name in (without_head, "tiny"):
        backbone, _, _ = setup_of(spec_of(tokens, tmp_path, backbone={"name": name, "head_bias": bias})).build()
        from_counts = name == without_head and bias == "unigram"
        expected = unigram_log_probabilities(tokens, vocabulary) if from_counts else torch.zeros(vocabulary.size)
        assert torch.equal(backbone.output_bias_V.detach(), expected)


SPLIT = {"name": "tiny", "dropout": 0.0, "experts": "ffn"}


def pretraining(tokens: Place, queries: Place, out: Path, **changes: Any) -> dict[str, Any]:
    train = {"steps": 6, "checkpoint_every": 3, "learning_rate": 3e-4, "batch_size": 15, **changes.pop("train", {})}
    base = {"objective": {"name": "cotmote"}, "backbone": SPLIT, "pseudo_queries": str(queries)}
    return spec_of(tokens, out, train=train, **{**base, **changes})


@pytest.fixture(scope="module")
def with_experts(tokens, pseudo_queries, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_here(pretraining(tokens, pseudo_queries, folder))
    return folder


def experts_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model" / FILE)


def test_micro_batches_and_a_kill_change_nothing(tokens, pseudo_queries, with_experts, tmp_path):
    run_here(pretraining(tokens, pseudo_queries, tmp_path / "micro", train={"micro_batch": 4}))
    with pytest.raises(Stopped):
        run_here(pretraining(tokens, pseudo_queries, tmp_path / "killed"), stop_at=5)
    run_here(pretraining(tokens, pseudo_queries, tmp_path / "killed"))
    for name in ("micro", "killed"):
        assert_same_run(trace_of(tmp_path / name), trace_of(with_experts), within=1e-4)
    same, killed = experts_of(with_experts), experts_of(tmp_path / "killed")
    assert all(torch.allclose(killed[name], tensor, atol=1e-6) for name, tensor in same.items())


def test_queries_are_trained_saved_and_searched_in_their_own_expert(tokens, corpus, with_experts, tmp_path):
    train = {"steps": 6, "learning_rate": 3e-4, "batch_size": 15}
    tuned = {"kind": "finetune", "objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
    backbone = {**SPLIT, "name": "start"}
    run_here(spec_of(tokens, tmp_path / "tuned", **tuned, train=train, backbone=backbone, start=str(with_experts)))
    before, after = experts_of(with_experts), experts_of(tmp_path / "tuned")
    assert before.keys() == after.keys() and not any(torch.equal(before[name], after[name]) for name in before)
    passages = safetensors.torch.load_file(tmp_path / "tuned" / "model" / "model.safetensors")
    assert not any(torch.equal(passages[name], tensor) for name, tensor in after.items())

    model = Place(str(tmp_path / "tuned" / "model"))
    inputs = artifacts(corpus, model=model, tokens=tokens)
    configs = {"query": EncodeConfig(side="queries", split="dev"), "passage": EncodeConfig(side="passages")}
    for side, other in (("query", "passage"), ("passage", "query")):
        work = Encode(configs[side], inputs, Place(str(tmp_path / side)))
        assert work.begin() and work.encode(0) == 1
        found, rows = np.load(tmp_path / side / "dense" / "00000.npy"), token_rows(work.blocks[0].read(["ids"])["ids"])
        np.testing.assert_allclose(found, vectors(model, rows, side), atol=1e-5)
        assert np.abs(found - vectors(model, rows, other)).max() > 1e-3


@torch.no_grad()
def vectors(model: Place, rows: list[NDArray[np.int32]], side: Side) -> NDArray[np.float32]:
    """[CLS] of each row alone."""
    backbone = load_backbone(Path(model.uri), dropout=0.0).eval()
    texts = (torch.from_numpy(row.astype(np.int64))[None] for row in rows)
    return torch.stack([backbone.hidden(ids, torch.tensor([ids.shape[1]]), side)[0, 0] for ids in texts]).numpy()
