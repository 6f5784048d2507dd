"""Runs with experts: cut or killed they are the same; queries stay in their expert to the search."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.encoders.backbone import Side, load_backbone
from midmask.encoders.experts import FILE
from midmask.retrieve.blocks import token_rows
from midmask.retrieve.encode import Encode, EncodeConfig, EncodeWorker
from tests.support.training.fixtures import artifacts
from tests.support.training.runs import Stopped, assert_same_run, run_here, spec_of, trace_of

SPLIT = {"name": "tiny", "dropout": 0.0, "experts": "ffn"}


def pretraining(tokens: Place, queries: Place, out: Path, **changes: Any) -> dict[str, Any]:
    train = {"steps": 6, "checkpoint_every": 3, "learning_rate": 3e-4, "batch_size": 15, **changes.pop("train", {})}
    base = {"objective": {"name": "cotmote"}, "backbone": SPLIT, "pseudo_queries": str(queries)}
    return spec_of(tokens, out, train=train, **{**base, **changes})


@pytest.fixture(scope="module")
def whole(tokens, pseudo_queries, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_here(pretraining(tokens, pseudo_queries, folder))
    return folder


def experts_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model" / FILE)


def test_micro_batches_and_a_kill_change_nothing(tokens, pseudo_queries, whole, tmp_path):
    run_here(pretraining(tokens, pseudo_queries, tmp_path / "micro", train={"micro_batch": 4}))
    with pytest.raises(Stopped):
        run_here(pretraining(tokens, pseudo_queries, tmp_path / "killed"), stop_at=5)
    run_here(pretraining(tokens, pseudo_queries, tmp_path / "killed"))
    for name in ("micro", "killed"):
        assert_same_run(trace_of(tmp_path / name), trace_of(whole), within=1e-4)
    same, killed = experts_of(whole), experts_of(tmp_path / "killed")
    assert all(torch.allclose(killed[name], tensor, atol=1e-6) for name, tensor in same.items())


def test_queries_are_trained_saved_and_searched_in_their_own_expert(tokens, corpus, whole, tmp_path):
    train = {"steps": 6, "learning_rate": 3e-4, "batch_size": 15}
    tuned = {"kind": "finetune", "objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
    backbone = {**SPLIT, "name": "start"}
    run_here(spec_of(tokens, tmp_path / "tuned", **tuned, train=train, backbone=backbone, start=str(whole)))
    before, after = experts_of(whole), experts_of(tmp_path / "tuned")
    assert before.keys() == after.keys() and not any(torch.equal(before[name], after[name]) for name in before)
    passages = safetensors.torch.load_file(tmp_path / "tuned" / "model" / "model.safetensors")
    assert not any(torch.equal(passages[name], tensor) for name, tensor in after.items())

    model = Place(str(tmp_path / "tuned" / "model"))
    inputs = artifacts(corpus, model=model, tokens=tokens)
    for side, other, config in (
        ("query", "passage", EncodeConfig(side="queries", split="dev")),
        ("passage", "query", EncodeConfig(side="passages")),
    ):
        work = Encode(config, inputs, Place(str(tmp_path / side)))
        assert work.begin() and EncodeWorker(work).encode(0) == 1
        found, rows = np.load(tmp_path / side / "dense" / "00000.npy"), token_rows(work.blocks[0].read(["ids"])["ids"])
        np.testing.assert_allclose(found, vectors(model, rows, side), atol=1e-5)
        assert np.abs(found - vectors(model, rows, other)).max() > 1e-3


@torch.no_grad()
def vectors(model: Place, rows: list[NDArray[np.int32]], side: Side) -> NDArray[np.float32]:
    """[CLS] of each row alone."""
    backbone = load_backbone(Path(model.uri), dropout=0.0).eval()
    texts = (torch.from_numpy(row.astype(np.int64))[None] for row in rows)
    return torch.stack([backbone.hidden(ids, torch.tensor([ids.shape[1]]), side)[0, 0] for ids in texts]).numpy()
