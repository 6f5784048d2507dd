"""Backbones and representations in a plan: their defaults, what they cannot do, what is shared, and folders as read."""

from pathlib import Path

import ir_measures
import numpy as np
import pytest
import torch
from ir_measures import Qrel, ScoredDoc
from safetensors.torch import save_file
from transformers import AutoConfig

from midmask.app.driver import recipe_for
from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.core.config import flatten, override
from midmask.encoders.experts import FILE
from midmask.errors import UserError
from midmask.experiment.changes import apply_changes, as_folder_reads
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan, settle_precision
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import adopted
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve import ranked
from midmask.retrieve.bm25.search import Bm25Config
from midmask.store.place import Place
from midmask.store.pretrained import model_folder
from midmask.teacher.teach import TeacherConfig
from tests.support.api import toy
from tests.support.benchmark.tiny import short, write_collection
from tests.support.corpora.collections import json_lines, write, write_beir
from tests.support.encoders.models import random_model


def on(folder: Path, family: str, **fields: object) -> Recipe:
    """RetroMAE on a folder with a config and no weights at all."""
    AutoConfig.for_model(family, **fields).save_pretrained(folder)
    return override(RECIPES["retromae"](), {"backbone.name": str(folder)})


@pytest.mark.parametrize(
    ("family", "fields", "lack"),
    [("modernbert", {}, "no table of positions"),
     ("deberta-v2", {"position_biased_input": False}, "no table of positions"),
     ("electra", {"embedding_size": 16, "hidden_size": 32}, "embeddings 16 wide")],
)  # fmt: skip
def test_a_stream_that_the_backbone_cannot_embed_is_refused(family, fields, lack, tmp_path) -> None:
    recipe = on(tmp_path, family, **fields)
    recipe.check()
    asked = override(recipe, {"objective.query_stream": "embedding"})
    with pytest.raises(UserError, match=rf"objective.query_stream = embedding: a {family} backbone has {lack}.*=paper"):
        asked.check()
    dupmae = apply_changes(RECIPES["dupmae"](), {"backbone.name": str(tmp_path)})
    assert dupmae.objective is not None and dupmae.objective.query_stream == "paper", "in place of its code's"
    dupmae.check()
    apply_changes(dupmae, {"objective.decode": "ot"}).check()
    back = [apply_changes(one, {"backbone.name": "tiny"}).objective.query_stream for one in (dupmae, recipe)]
    assert back == ["embedding", "paper"]


def test_rows_beyond_the_backbones_positions_are_refused(tmp_path: Path) -> None:
    recipe = on(tmp_path, "roberta", max_position_embeddings=50, pad_token_id=1)
    override(recipe, {"tokens.max_length": 48}).check()
    with pytest.raises(UserError, match=r"tokens.max_length = 49: the backbone takes at most 48 tokens"):
        override(recipe, {"tokens.max_length": 49}).check()
    taught = apply_changes(RECIPES["dupmae"](), {"backbone.name": str(tmp_path)})
    with pytest.raises(UserError, match=r"stages.2.teacher.loss.max_length = 192: the backbone takes at most 48"):
        taught.check()


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
    assert divided.pretrained.fingerprint == whole.pretrained.fingerprint, "the middle training is shared"
    assert divided.stages[0].config.backbone.experts == experts
    own = plan(override(RECIPES["cotmote"](), {"backbone.experts": experts})).pretrained
    assert own.config.backbone.experts == experts


PAIR = {"tokens.titles": True, "tokens.title_join": "pair"}


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [("mlm", {**PAIR, "objective.packing": True}, r"objective\.packing = true.*objective\.packing=false"),
     ("retromae", {**PAIR, "excerpt": 20}, r"excerpt = 20.*leave excerpt at none"),
     ("rom", {**PAIR, "tokens.titles": False}, r"title_join = pair with titles = false.*tokens\.titles=true"),
     ("none", {"stages.0.loss.widths": (64, 128)}, "loss.widths = 64,128: the dense view has 128 dimensions"),
     ("none", {"evaluation.width": 8, "representation.width": 4}, "has 4 dimensions"),
     ("none", {"evaluation.width": 8, "evaluation.index": "IVF4,Flat"}, "it is of an exact search")],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_before_any_work(method: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(RECIPES[method](), changes).check()


def test_a_folder_s_form_is_taken_over_and_a_teacher_reads_one_text(tmp_path: Path) -> None:
    random_model("bert").save_pretrained(tmp_path)
    form = '{"titles": true, "title_join": "pair"}'
    (tmp_path / "midmask.json").write_text(f'{{"format": 3, "representation": {{}}, "form": {form}}}')
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
    recipe = override(
        short(RECIPES["none"](), write_collection(tmp_path / "words")), {"stages.0.loss.widths": (32, 64)}
    )
    recipe.check()
    whole, cut = (search_of(override(recipe, {"evaluation.width": width})) for width in (None, 32))
    assert cut.config.width == 32 and cut.fingerprint != whole.fingerprint
    assert all(cut.inputs[name] == whole.inputs[name] for name in ("passages", "queries")), "encoded once"


FOLLOWING = {
    "pretrain.learning_rate": (1e-3, 5e-5), "stages.0.train.learning_rate": (1e-3, 5e-5),
    "stages.2.train.learning_rate": (1e-3, 5e-5), "stages.2.teacher.train.learning_rate": (5e-4, 5e-5),
    "tokens.max_length": (48, 128), "tokens.query_length": (24, 32), "spans.span_length": (48, 128),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A config alone: defaults are known before any weight is read."""
    AutoConfig.for_model("bert").save_pretrained(tmp_path / "bert")
    return str(tmp_path / "bert")


def asked(*flags: str, recipe: str = "dupmae") -> Recipe:
    options = resolve(parse(["--recipe", recipe, *flags], "A job."), Path("jobs/run_recipe.py"))
    return recipe_for(options, default="none")


def values(recipe: Recipe) -> dict[str, object]:
    found = flatten(recipe)
    return {path: found[path] for path in FOLLOWING}


def test_a_command_line_gets_the_defaults_of_its_backbone(folder: str) -> None:
    assert values(asked()) == {path: fresh for path, (fresh, _) in FOLLOWING.items()}
    assert values(asked("--set", "backbone.name=mini")) == values(asked())
    found = asked("--set", f"backbone.name={folder}")
    assert values(found) == {path: pretrained for path, (_, pretrained) in FOLLOWING.items()}
    assert found.tokens.tokenizer == folder
    untrained = asked("--set", f"backbone.name={folder}", "--set", "backbone.fresh=true")
    assert values(untrained) == values(asked()), "only the shape of a folder is no pre-training"


def test_a_finished_retriever_is_pooled_and_scored_as_its_files_say(folder: str) -> None:
    found = asked("--set", "backbone.name=minilm", recipe="retromae")
    assert (found.representation.dense, found.representation.normalise) == ("mean", True)
    assert found.backbone.sentence_vector == "mean" and found.tokens.tokenizer == "minilm"
    assert found.backbone.head_bias == "unigram"
    assert {stage.loss.temperature for stage in found.stages} == {0.05}
    again = apply_changes(found, {"backbone.name": folder})
    assert (again.representation.dense, again.representation.normalise) == ("cls", False)
    assert (again.backbone.sentence_vector, again.tokens.tokenizer) == ("cls", folder)
    with_words = asked("--protocol", "dupmae", "--set", "backbone.name=minilm")
    assert with_words.representation.lexical and not with_words.representation.normalise


@pytest.mark.parametrize("path", FOLLOWING)
def test_what_is_set_by_hand_wins_even_if_it_is_the_other_default(path: str, folder: str) -> None:
    fresh, _ = FOLLOWING[path]
    found = flatten(asked("--set", f"{path}={fresh}", "--set", f"backbone.name={folder}"))
    assert found[path] == fresh
    assert all(found[other] == pretrained for other, (_, pretrained) in FOLLOWING.items() if other != path)


def test_published_protocols_keep_their_numbers(folder: str) -> None:
    for name in PROTOCOLS:
        published = PROTOCOLS[name]().on(RECIPES["mlm"](), "published")
        found = apply_changes(published, {"backbone.name": folder})
        assert found.stages == published.stages, name
        assert found.pretrain.learning_rate == 5e-5, "the recipe's own, which is no protocol's"


def test_a_precision_set_by_hand_stays_and_teachers_keep_their_own() -> None:
    by_hand = override(RECIPES["dupmae"](), {"evaluation.precision": "fp32", "pretrain.precision": "fp32"})
    auto = {path for path, value in flatten(by_hand).items() if path.endswith(".precision") and value == "auto"}
    settled = flatten(settle_precision(by_hand, "bf16"))
    own = {path for path in auto if ".teacher." not in path}
    assert {path for path, value in settled.items() if value == "bf16"} == own
    assert settled["evaluation.precision"] == settled["pretrain.precision"] == "fp32"
    assert settled["stages.2.teacher.train.precision"] == "auto"


MINILM = model_folder("minilm")


def test_all_minilm_scores_and_ranks_as_in_sentence_transformers(tmp_path: Path) -> None:
    """40 passages, one of them longer than the model reads, each under the beginning of another one as its title."""
    from sentence_transformers import SentenceTransformer

    texts, folder = [*toy.texts()[:39], "amber birch cedar " * 150], tmp_path / "few"
    titles = [text[:20] for text in (*texts[1:], texts[0])]
    passages = [{"_id": f"d{n}", "title": titles[n], "text": text} for n, text in enumerate(texts)]
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(toy.queries()[:6])]
    qrels = [Qrel(f"q{n}", f"d{n + step}", 2 - step) for n in range(6) for step in (0, 1)]
    write(folder / "corpus.jsonl", json_lines(passages))
    write(folder / "queries.jsonl", json_lines(queries))
    judged = "".join(f"{qrel.query_id}\t{qrel.doc_id}\t{qrel.relevance}\n" for qrel in qrels)
    write(folder / "qrels" / "test.tsv", f"query-id\tcorpus-id\tscore\n{judged}".encode())

    model = SentenceTransformer(str(MINILM), device="cpu", local_files_only=True)
    passages_ND = model.encode([f"{row['title']} {row['text']}" for row in passages])
    scores_QN = model.encode([row["text"] for row in queries]) @ passages_ND.T
    run = [
        ScoredDoc(query["_id"], passage["_id"], float(score))
        for query, scores_N in zip(queries, scores_QN, strict=True)
        for passage, score in zip(passages, scores_N, strict=True)
    ]
    expected = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]

    recipe = override(RECIPES["retromae"](), {"corpus.name": f"beir:{folder}", "corpus.splits": "official"})
    recipe = as_folder_reads(recipe, MINILM, ())
    config = recipe.evaluation.model_copy(update={"split": "test"})
    step = plan(recipe).evaluation(config, model=adopted(str(MINILM)))
    runner = Runner(Place(str(tmp_path / "store")), LOCAL)
    done = runner.compute(step)
    assert done.result["measures"]["nDCG@10"] == pytest.approx(expected, abs=1e-3)
    assert done.result["queries"] == 6 and not done.result["split_made_here"]
    found = ranked.read(runner.compute(step.inputs["ranked"]).place / "ranked" / "test.parquet")
    scores = {(row.query_id, row.doc_id): row.score for row in run}
    for row in found.to_pylist():
        assert row["score"] == pytest.approx(scores[row["query_id"], row["doc_id"]], abs=1e-4)
    tokenizer = model.tokenizer
    lengths = [len(tokenizer(f"{row['title']} {row['text']}")["input_ids"]) for row in passages]
    cut = round(float(np.mean(np.array(lengths) > 256)), 4)
    assert done.result["read"]["passages"] == {"length": 256, "cut_share": cut, "titles": True}


def test_what_the_user_sets_wins_over_the_folder() -> None:
    recipe = RECIPES["retromae"]()
    read = as_folder_reads(recipe, MINILM, ()).tokens
    assert (read.max_length, read.query_length, read.titles, read.tokenizer) == (256, 256, True, str(MINILM))
    asked = override(recipe, {"tokens.max_length": 64, "tokens.titles": False})
    kept = as_folder_reads(asked, MINILM, ("tokens.max_length", "tokens.titles")).tokens
    assert (kept.max_length, kept.query_length, kept.titles) == (64, 256, False)
