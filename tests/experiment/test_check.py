"""Backbones and representations in a plan: what they cannot do is said before anything runs, and what is shared."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors.torch import save_file
from transformers import AutoConfig

from midmask.artifact import Artifact, Place, load
from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.encoders.experts import FILE
from midmask.errors import UserError
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.merge import MergeConfig, merge
from midmask.experiment.model_folder import as_folder_reads
from midmask.experiment.plan import Step, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.bm25 import Bm25Config
from midmask.teacher.teach import TeacherConfig
from midmask.vocabulary import Vocabulary
from tests.support.benchmark.tiny import short, write_collection
from tests.support.corpora.collections import write_beir
from tests.support.encoders.models import random_model
from tests.support.encoders.tokenizers import write_tokenizer
from tests.support.unread import Unread


def on(folder: Path, family: str, **fields: object) -> Recipe:
    """RetroMAE on a folder with a config and no weights at all."""
    AutoConfig.for_model(family, **fields).save_pretrained(folder)
    return override(RECIPES["retromae"](), {"backbone.name": str(folder)})


@pytest.mark.parametrize(
    ("family", "fields", "lack"),
    [
        ("modernbert", {}, "no table of positions"),
        ("deberta-v2", {"position_biased_input": False}, "no table of positions"),
        ("electra", {"embedding_size": 16, "hidden_size": 32}, "embeddings 16 wide"),
    ],
)
def test_a_stream_that_the_backbone_cannot_embed_is_refused(
    family: str, fields: dict[str, object], lack: str, tmp_path: Path
) -> None:
    recipe = on(tmp_path, family, **fields)
    recipe.check()
    asked = override(recipe, {"objective.query_stream": "embedding"})
    with pytest.raises(UserError, match=rf"objective.query_stream = embedding: a {family} backbone has {lack}.*=paper"):
        asked.check()


def test_rows_beyond_the_backbones_positions_are_refused(tmp_path: Path) -> None:
    recipe = on(tmp_path, "roberta", max_position_embeddings=50, pad_token_id=1)
    override(recipe, {"tokens.max_length": 48}).check()
    with pytest.raises(UserError, match=r"tokens.max_length = 49: the backbone takes at most 48 tokens"):
        override(recipe, {"tokens.max_length": 49}).check()


def test_a_query_expert_that_would_stay_behind_is_refused(tmp_path: Path) -> None:
    AutoConfig.for_model("bert").save_pretrained(tmp_path)
    save_file({"a.weight": torch.zeros(1)}, tmp_path / FILE, {"kind": "ffn", "norms": "false"})
    wanted = {"backbone.name": str(tmp_path), "backbone.experts": "ffn"}
    with pytest.raises(UserError, match=r"backbone\.experts = ffn: mlm sees no queries, .*experts=drop"):
        override(RECIPES["mlm"](), wanted).check()
    for recipe in ("cotmote", "none"):
        override(RECIPES[recipe](), wanted).check()


@pytest.mark.parametrize("experts", ["ffn", "all"])
def test_a_method_without_queries_trains_one_encoder_that_fine_tuning_splits(experts: str) -> None:
    divided = plan(override(RECIPES["cotmae"](), {"backbone.experts": experts}))
    whole = plan(RECIPES["cotmae"]())
    assert divided.pretrained is not None and whole.pretrained is not None
    assert divided.pretrained.fingerprint == whole.pretrained.fingerprint, "the middle training is shared"
    assert divided.stages[0].config.backbone.experts == experts
    own = plan(override(RECIPES["cotmote"](), {"backbone.experts": experts})).pretrained
    assert own is not None and own.config.backbone.experts == experts


REFUSED = {
    "mlm": ({"objective.packing": True}, r"objective\.packing = true.*objective\.packing=false"),
    "retromae": ({"excerpt": 20}, r"excerpt = 20.*leave excerpt at none"),
    "dupmae": ({"pretrain_on": ["tokens:/rows"]}, r"tokens:/rows.*name a collection with titles"),
    "rom": ({"tokens.titles": False}, r"title_join = pair with titles = false.*tokens\.titles=true"),
}


@pytest.mark.parametrize("method", REFUSED)
def test_what_has_no_meaning_is_refused(method: str) -> None:
    changes, message = REFUSED[method]
    with pytest.raises(UserError, match=message):
        override(RECIPES[method](), {"tokens.titles": True, "tokens.title_join": "pair", **changes})


def test_a_folder_s_form_is_taken_over_and_a_teacher_reads_one_text(tmp_path: Path) -> None:
    random_model("bert").save_pretrained(tmp_path)
    (tmp_path / "midmask.json").write_text(
        '{"format": 3, "representation": {}, "form": {"titles": true, "title_join": "pair"}}'
    )
    recipe: Recipe = RECIPES["retromae"]()
    read = as_folder_reads(recipe, tmp_path, ()).tokens
    assert (read.titles, read.title_join) == (True, "pair")
    without = as_folder_reads(override(recipe, {"tokens.titles": False}), tmp_path, ("tokens.titles",)).tokens
    assert (without.titles, without.title_join) == (False, "space")
    teacher = TeacherConfig(folder="/teacher")
    assert teacher.read_from(read).title_join == "space"


@pytest.fixture
def late(tmp_path: Path) -> Recipe:
    write_beir(tmp_path / "few")
    recipe = PROTOCOLS["in_batch_late"]().on(RECIPES["none"](), "demo")
    return override(recipe, {"corpus.name": f"beir:{tmp_path}/few", "evaluation.depth": 50})


def search_of(recipe: Recipe) -> Step:
    return plan(recipe).evaluation(recipe.evaluation).inputs["ranked"]


def test_the_candidates_are_bm25s_first_and_one_more_for_a_query_that_is_a_passage(late: Recipe) -> None:
    pooled, deeper = search_of(late), search_of(override(late, {"evaluation.pool": 2000}))
    config = pooled.inputs["candidates"].config
    assert isinstance(config, Bm25Config)
    assert (config.depth, config.splits, config.titles) == (1001, ("dev",), late.tokens.titles)
    assert pooled.fingerprint != deeper.fingerprint and pooled.inputs["passages"] == deeper.inputs["passages"]
    whole = search_of(override(late, {"evaluation.candidates": "all"}))
    assert "candidates" not in whole.inputs and pooled.inputs["passages"] == whole.inputs["passages"]
    wider = override(late, {"evaluation.pool": 77}).evaluation
    own = [plan(late).bm25_evaluation(evaluation).fingerprint for evaluation in (late.evaluation, wider)]
    assert own[0] == own[1], "BM25 itself has no pool"


def test_a_recipe_with_widths_is_searched_by_them_without_new_vectors(tmp_path: Path) -> None:
    corpus, storage = write_collection(tmp_path / "words"), Place(str(tmp_path / "store"))
    recipe = override(short(RECIPES["none"](), corpus), {"stages.0.loss.widths": (32, 64)})
    runner, found = Runner(storage, LOCAL, Silent()), {}
    for width in (None, 32):
        steps = plan(recipe)
        evaluation = steps.evaluation(recipe.evaluation.model_copy(update={"width": width}))
        runner.run(evaluation)
        search = evaluation.inputs["ranked"]
        found[width] = load(search.place(storage)).result["bytes_per_passage"]
    assert found[32] == 4 * 32 < found[None]
    assert len((storage / "encode").names()) == 2, "passages and queries, once"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stages.0.loss.widths": (64, 128)}, "loss.widths = 64,128: the dense view has 128 dimensions"),
        ({"evaluation.width": 8, "representation.width": 4}, "has 4 dimensions"),
        ({"evaluation.width": 8, "evaluation.index": "IVF4,Flat"}, "it is of an exact search"),
    ],
)
def test_widths_that_cannot_be_are_refused_before_any_work(changes: dict[str, object], told: str) -> None:
    with pytest.raises(UserError) as refused:
        override(RECIPES["none"](), changes).check()
    assert told in str(refused.value)


def artifact(folder: Path, tokenizer: Path, seed: int) -> Artifact:
    backbone = build_backbone(BackboneConfig(), Vocabulary.of(tokenizer), seed=seed)
    backbone.save(folder / "model", tokenizer)
    return Artifact(Place(str(folder)), {"fingerprint": folder.name})


def test_every_weight_of_the_encoder_is_the_mean_and_the_head_is_the_trained_one(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer", "bert")
    inputs = {name: artifact(tmp_path / name, tokenizer, seed) for seed, name in enumerate(("initial", "start"))}
    merge(MergeConfig(start_share=0.25), inputs, Place(str(tmp_path / "out")))
    start, end, found = (
        safetensors.torch.load_file(tmp_path / name / "model" / "model.safetensors")
        for name in ("initial", "start", "out")
    )
    assert found.keys() == end.keys() and any(name.startswith("cls.") for name in found)
    for name, tensor in found.items():
        mean = 0.25 * start[name].double() + 0.75 * end[name].double()
        torch.testing.assert_close(tensor.double(), mean if name.startswith("bert.") else end[name].double())
    load_backbone(tmp_path / "out" / "model", dropout=0.0)


def test_fine_tuning_and_the_untuned_retriever_begin_with_it() -> None:
    steps = plan(apply_changes(RECIPES["retromae"](), {"backbone.name": "minilm", "merge": 0.5}), Unread())
    for step in (steps.stages[0], steps.untuned):
        assert step.inputs["start"].name == "merge"
        assert step.inputs["start"].inputs == {"start": steps.pretrained, "initial": steps.initial}
    steps = plan(apply_changes(RECIPES["retromae"](), {"backbone.name": "minilm"}), Unread())
    assert steps.stages[0].inputs["start"] == steps.pretrained
