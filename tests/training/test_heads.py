"""Continued pre-training: heads lie beside the model, and another method's run takes over those that fit."""

import logging
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from transformers import AutoModel

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.training.runs import run_here, run_workers, spec_of, trace_of

TENSORS = 16
"""Of RetroMAE's one decoder layer: six linear layers and two norms, weight and bias each."""


@pytest.fixture(scope="module")
def trained(tokens: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_heads_lie_in_the_models_folder_and_name_their_objective(trained: Path) -> None:
    with safe_open(trained / "model" / "heads.safetensors", "pt") as file:
        assert file.metadata()["objective"] == "retromae"
        assert len(file.keys()) == TENSORS and "decoder.0.feed_in.weight" in file.keys()
    assert not (trained / "heads.safetensors").exists()


def test_other_libraries_load_the_folder_as_if_there_were_no_heads(trained: Path) -> None:
    from sentence_transformers import SentenceTransformer

    ids = torch.tensor([[2, 9, 8, 3]])
    plain = AutoModel.from_pretrained(trained / "model").eval()(input_ids=ids).last_hidden_state
    inner = SentenceTransformer(str(trained / "model"), device="cpu", local_files_only=True)[0].auto_model.eval()
    torch.testing.assert_close(inner(input_ids=ids).last_hidden_state, plain)


def test_going_on_with_the_same_method_begins_where_it_ended(tokens: Place, trained: Path, tmp_path: Path) -> None:
    """A learning rate of next to nothing: the first losses of a run that goes on, twice, are those of the end."""
    retromae = {"name": "retromae"}
    first = run_here(going_on(tokens, tmp_path / "a", trained, retromae, learning_rate=1e-30))
    second = run_here(going_on(tokens, tmp_path / "b", tmp_path / "a", retromae))
    assert taken(first) == taken(second) == (TENSORS, 0)
    one, other = trace_of(tmp_path / "a")[0], trace_of(tmp_path / "b")[0]
    assert one["rows"] == other["rows"] and one["loss"] == other["loss"]
    for name, tensor in heads_of(trained).items():
        assert torch.equal(tensor, heads_of(tmp_path / "a")[name]), name


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ({"name": "dupmae", "query_stream": "paper"}, (TENSORS, 0)),
        ({"name": "retromae", "decoding": "basic", "decoder_layers": 2}, (TENSORS, TENSORS)),
        ({"name": "mlm"}, (0, 0)),
    ],
    ids=lambda value: str(value["name"]) if isinstance(value, dict) else "",
)
def test_another_method_takes_what_fits(
    objective: dict[str, Any],
    expected: tuple[int, int],
    tokens: Place,
    trained: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    result = run_here(going_on(tokens, tmp_path, trained, objective, learning_rate=1e-30))
    assert taken(result) == expected
    assert (f"heads: {expected[0]} tensors taken over, {expected[1]} fresh" in caplog.text) == (expected[0] > 0)
    if expected[0]:
        assert torch.equal(
            heads_of(tmp_path)["decoder.0.feed_in.weight"], heads_of(trained)["decoder.0.feed_in.weight"]
        )


def test_a_model_without_heads_gives_none(tokens: Place, tmp_path: Path) -> None:
    run_here(spec_of(tokens, tmp_path / "mlm", train={"steps": 2}))
    assert not (tmp_path / "mlm" / "model" / "heads.safetensors").exists()
    assert taken(run_here(going_on(tokens, tmp_path / "on", tmp_path / "mlm", {"name": "retromae"}))) == (0, TENSORS)


def test_fresh_weights_in_the_folders_shape_take_no_heads(tokens: Place, trained: Path, tmp_path: Path) -> None:
    backbone = {"name": str(trained / "model"), "fresh": True}
    spec = spec_of(tokens, tmp_path, objective={"name": "retromae"}, backbone=backbone, train={"steps": 1})
    assert taken(run_here(spec)) == (0, TENSORS)


def test_heads_of_another_width_stay_behind(tokens: Place, trained: Path, tmp_path: Path) -> None:
    spec = spec_of(tokens, tmp_path / "mini", backbone={"name": "mini"}, objective={"name": "mlm"}, train={"steps": 1})
    run_here(spec)
    heads = (trained / "model" / "heads.safetensors").read_bytes()
    (tmp_path / "mini" / "model" / "heads.safetensors").write_bytes(heads)
    result = run_here(going_on(tokens, tmp_path / "on", tmp_path / "mini", {"name": "retromae"}))
    assert taken(result) == (0, TENSORS)


def test_unreadable_heads_are_one_line(tokens: Place, trained: Path, tmp_path: Path) -> None:
    run_here(going_on(tokens, tmp_path / "copy", trained, {"name": "retromae"}, steps=1))
    (tmp_path / "copy" / "model" / "heads.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match=r"heads.safetensors: no heads can be read there"):
        run_here(going_on(tokens, tmp_path / "on", tmp_path / "copy", {"name": "retromae"}))


def test_a_run_killed_and_started_again_goes_on_from_its_own_heads(
    tokens: Place, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def spec(out: str) -> dict[str, Any]:
        train = {"steps": 12, "checkpoint_every": 5}
        return going_on(tokens, tmp_path / out, trained, {"name": "retromae"}, **train)

    caplog.set_level(logging.INFO)
    whole = run_here(spec("whole"))
    assert caplog.text.count("taken over") == 1
    assert run_workers({**spec("cut"), "kill_at": 7}, 1, tmp_path) == [-9]
    resumed = run_here(spec("cut"))
    assert caplog.text.count("taken over") == 1, "a resumed run does not start from the folder"
    assert taken(resumed) == taken(whole) == (TENSORS, 0)
    for name, tensor in heads_of(tmp_path / "whole").items():
        torch.testing.assert_close(heads_of(tmp_path / "cut")[name], tensor, rtol=1e-5, atol=1e-6)
        assert not torch.equal(tensor, heads_of(trained)[name]), "the run was to train its heads"


def test_a_start_of_another_step_gives_its_heads_too(tokens: Place, trained: Path, tmp_path: Path) -> None:
    spec = spec_of(tokens, tmp_path, objective={"name": "retromae"}, start=str(trained), train={"steps": 1})
    assert taken(run_here(spec)) == (TENSORS, 0)


def test_heads_are_part_of_a_folders_identity(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "a passage"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    places = {"corpus.name": f"beir:{tmp_path}", "backbone.name": str(trained / "model")}
    recipe = override(RECIPES["retromae"](), places)
    before = plan(recipe).pretrained
    heads = trained / "model" / "heads.safetensors"
    kept = heads.read_bytes()
    safetensors.torch.save_file({"decoder.0.query.bias": torch.zeros(128)}, heads)
    after = plan(recipe).pretrained
    heads.write_bytes(kept)
    assert before is not None and after is not None and before.fingerprint != after.fingerprint
