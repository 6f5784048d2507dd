"""Embedding distillation against loops and NumPy in float64. Its targets are sentence-transformers' vectors; a training
turns the encoder's to them, and leaves nothing of the teacher.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, DistilBertConfig

from midmask.core.config import override
from midmask.encoders.model_settings import ModelSettings
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import pretrain_setup
from midmask.objectives.pretraining.distil_vectors import DistilVectors
from midmask.recipes import RECIPES
from midmask.store.place import Place
from midmask.store.pretrained import model_folder
from tests.support.benchmark.tiny import ONE_STAGE
from tests.support.corpora.collections import json_lines, write, write_beir
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, unit
from tests.support.objectives.texts import batch_for

LENGTHS = [8, 4, 6, 3, 11]


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_loss_and_every_gradient_equal_the_reference(weight: float) -> None:
    distil = build(DistilVectors, spread_weight=weight)
    drawn, reference = distil.draw(batch_for(distil.config, LENGTHS, [])), reference_of(distil)
    units = [unit(reference.encode(ids(drawn.text, row))[0]) for row in range(len(LENGTHS))]
    projection = reference.get("teacher_projection.weight")
    targets = [unit(vector.double()) for vector in drawn.teacher_BD]
    terms = {
        "distance": [1 - unit(projection @ z) @ t for z, t in zip(units, targets, strict=True)],
        "spread": [
            sum((z @ other) ** 2 for column, other in enumerate(units) if column != row) / (len(units) - 1)
            for row, z in enumerate(units)
        ],
    }
    assert_equal(distil, drawn, reference, terms, [1.0, weight])


def test_values_and_gradients_by_the_vectors_equal_numpys() -> None:
    """Closed forms, without autograd; the teacher's vectors are not of length 1."""
    distil, generator = build(DistilVectors), torch.Generator().manual_seed(5)
    z_BD = torch.nn.functional.normalize(torch.randn((6, 128), generator=generator, dtype=torch.float64))
    t_BT = 3 * torch.randn((6, 384), generator=generator, dtype=torch.float64)
    distance = distil._distance(z_BD.requires_grad_(), t_BT).total
    by_z, by_w = torch.autograd.grad(distance, (z_BD, distil.teacher_projection.weight))
    spread = distil.couple((z_BD,), ())["spread"].total
    (spread_by_z,) = torch.autograd.grad(spread, z_BD)

    z, t, w = (x.detach().numpy() for x in (z_BD, t_BT, distil.teacher_projection.weight))
    p = z @ w.T
    length = np.linalg.norm(p, axis=1, keepdims=True)
    p_hat, t_hat = p / length, t / np.linalg.norm(t, axis=1, keepdims=True)
    cosine = (p_hat * t_hat).sum(1, keepdims=True)
    by_p = -(t_hat - cosine * p_hat) / length
    others = (z @ z.T) * (1 - np.eye(6))
    found = (distance, by_z, by_w, spread, spread_by_z)
    expected = ((1 - cosine).sum(), by_p @ w, by_p.T @ z, (others**2).sum() / 5, 4 * others @ z / 5)
    for ours, numpys in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), numpys, rtol=1e-10, atol=1e-12)


def recipe_on(folder: Path, **changes: Any) -> Recipe:
    return override(RECIPES["distil_vectors"](), {**ONE_STAGE, "corpus.name": f"beir:{folder}", **changes})


@pytest.mark.parametrize("titles", [False, True])
def test_targets_are_sentence_transformers_vectors_of_the_same_texts(tmp_path: Path, titles: bool) -> None:
    """Also of a passage that the encoder cuts, and of one that the teacher cuts. Rows come in any order."""
    texts = ["set of titles", "a passage about " + "small words " * 40, "amber birch cedar " * 200, "a query"]
    docs = [{"_id": f"d{n}", "title": f"number {n}", "text": text} for n, text in enumerate(texts)]
    write_beir(tmp_path / "few")
    write(tmp_path / "few" / "corpus.jsonl", json_lines(docs))
    steps, runner = plan(recipe_on(tmp_path / "few", **{"tokens.titles": titles})), Runner(Place(str(tmp_path)), LOCAL)
    assert steps.pretrained is not None
    inputs = {name: runner.compute(step) for name, step in steps.pretrained.inputs.items()}
    rows = np.array([2, 0, 3, 1, 2])
    read = pretrain_setup(steps.pretrained.config, inputs).rows.open().read(rows, 0, 0)["passage"]
    model = SentenceTransformer(str(model_folder("minilm")), device="cpu", local_files_only=True)
    expected = model.encode([f"{doc['title']} {doc['text']}" if titles else doc["text"] for doc in docs])
    np.testing.assert_allclose(read.teacher, expected[rows], atol=1e-5)
    assert read.lengths.tolist()[0] == 48 < len(model.tokenize([texts[1]])["input_ids"][0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of sixty steps on sixty passages."""
    folder = tmp_path_factory.mktemp("distil")
    write_beir(folder / "here", passages=60, queries=45)
    steps = plan(recipe_on(folder / "here", **{"pretrain.steps": 60}))
    assert steps.pretrained is not None
    return Runner(Place(str(folder)), LOCAL).compute(steps.pretrained).place.local()


def test_vectors_turn_to_the_teachers_and_spread_out(trained: Path) -> None:
    trace = pq.read_table(trained / "trace.parquet").to_pylist()
    means = {name: [row[f"part/{name}"] for row in trace] for name in ("distance", "spread")}
    assert np.mean(means["distance"][-5:]) < np.mean(means["distance"][:5]) - 0.3
    assert np.mean(means["spread"][-5:]) < np.mean(means["spread"][:5])


def test_no_weight_of_the_teacher_learns_or_is_saved(trained: Path) -> None:
    """Beside the encoder there is the projection alone, and the saved model is the encoder."""
    distil = build(DistilVectors)
    heads = {name for name, _ in distil.named_parameters() if not name.startswith("backbone.")}
    assert heads == {"teacher_projection.weight"}
    assert not batch_for(distil.config, LENGTHS, []).teacher.requires_grad
    saved = safetensors.torch.load_file(trained / "model" / "heads.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in saved.items()} == {"teacher_projection.weight": (384, 128)}
    encoder = safetensors.torch.load_file(trained / "model" / "model.safetensors")
    assert {name for name in encoder if "layer." in name} == {
        name.removeprefix("backbone.model.") for name in distil.state_dict() if ".layer." in name
    }


@pytest.mark.parametrize(
    ("representation", "width"), [({}, 24), ({"dense": "mean", "width": 7}, 7), ({"lexical": "splade"}, 24)]
)
def test_the_projection_leads_to_the_teachers_dense_vector(
    tmp_path: Path, representation: dict[str, Any], width: int
) -> None:
    DistilBertConfig(dim=24, n_heads=2).save_pretrained(tmp_path)
    ModelSettings(representation=Representation(**representation)).write(tmp_path)
    assert build(DistilVectors, teacher=str(tmp_path)).teacher_projection.weight.shape == (width, 128)


def test_a_teacher_that_is_not_there_or_gives_no_dense_vector_is_refused(tmp_path: Path) -> None:
    sparse, empty = tmp_path / "sparse", tmp_path / "empty"
    empty.mkdir()
    BertConfig().save_pretrained(sparse)
    ModelSettings(representation=Representation(dense=None, lexical="splade")).write(sparse)
    for name, message in ((sparse, "no dense vector"), (empty, "no config.json"), ("/nowhere", "no such folder")):
        with pytest.raises(UserError, match=rf"objective\.teacher = .*{message}"):
            recipe_on(tmp_path, **{"objective.teacher": str(name)}).check()
