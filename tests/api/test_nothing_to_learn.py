"""A training that cannot learn is refused before it starts; one that can is not."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import midmask
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import PRETRAINING
from midmask.recipes import RECIPES
from tests.support.api import toy

TEXTS, QUERIES = toy.texts()[:40], toy.queries()[:40]
SPLITS = {"train": range(30), "dev": range(30, 40)}


def corpus(texts: Sequence[str] = TEXTS, queries: Sequence[str] = QUERIES, relevant: Sequence[int] = range(40)):  # type: ignore[no-untyped-def]
    return midmask.Corpus.from_texts(texts, queries=queries, relevant=relevant, splits=SPLITS)


def train(recipe: str, given: midmask.Corpus, settings: Mapping[str, object], store: Path) -> midmask.Run:
    return midmask.train(recipe, given, settings={**toy.SETTINGS, **settings}, storage=store, progress=False)


TEACHER = {
    "stages.0.loss": {"name": "distillation"},
    "stages.0.negatives": ["bm25"],
    "stages.0.per_query": 1,
    "stages.0.mine.depth": 20,
}
REFUSED: dict[str, tuple[str, midmask.Corpus, dict[str, object], str]] = {
    "one query a step": ("none", corpus(), {"stages.0.train.batch_size": 1}, "stages.0.train.batch_size = 1 .*=2"),
    "one relevant passage": ("mlm", corpus(relevant=[0] * 40), {}, "stages.0.train: .*same relevant passage.*bm25"),
    "equal passages": ("none", corpus([TEXTS[0]] * 40), {}, "stages.0.train: .*equal"),
    "equal queries": ("none", corpus(queries=[QUERIES[0]] * 40), {}, "stages.0.train: all train queries are equal"),
    "equal texts": ("simcse", midmask.Corpus.from_texts([TEXTS[0]] * 40), {}, "pretrain: all texts are equal"),
    "no rate": ("none", corpus(), {"stages.0.train.learning_rate": 0}, "stages.0.train.learning_rate = 0: .*above 0"),
    "no step": ("mlm", corpus(), {"pretrain.steps": 0}, "pretrain.steps = 0: .*above 0"),
    "no term": (
        "retromae",
        corpus(),
        {"objective.encoder_weight": 0, "objective.decoder_weight": 0},
        "objective.encoder_weight = objective.decoder_weight = 0: .*objective.encoder_weight=1",
    ),
    "no target": ("mlm", corpus(), {"objective.encoder_mask_ratio": 1e-9}, "pretrain: .*objective.encoder_mask_ratio="),
    "too few queries": ("mlm", corpus(), {"stages.0.train.batch_size": 31}, "only 30 .*stages.0.train.batch_size=30"),
    "too few texts": ("mlm", corpus(), {"pretrain.batch_size": 41}, "only 40 .*set pretrain.batch_size=40"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_before_anything_is_trained(case: str, tmp_path: Path) -> None:
    recipe, given, settings, message = REFUSED[case]
    with pytest.raises(UserError, match=message) as refused:
        train(recipe, given, settings, tmp_path)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("pretrain/*/artifact.json")) and not list(tmp_path.glob("finetune/*/artifact.json"))


def test_a_batch_of_one_is_no_remedy(tmp_path: Path) -> None:
    one = midmask.Corpus.from_texts(TEXTS, queries=QUERIES[:3], relevant=range(3), splits={"train": [0], "dev": [1, 2]})
    with pytest.raises(UserError, match="only 1 train quer") as refused:
        train("none", one, {}, tmp_path)
    assert "batch_size=1" not in str(refused.value)


def scores_of(file: Path, value: Mapping[int, float]) -> dict[str, object]:
    lines = [
        f"{query}\t{document}\t{value.get(document - query, 1.0)}" for query in range(40) for document in range(40)
    ]
    file.write_text("\n".join(lines))
    return {**TEACHER, "stages.0.teacher": {"scores": str(file)}}


@pytest.mark.parametrize("loss", ["kl", "margin_mse"])
def test_a_teacher_without_an_order_is_refused(loss: str, tmp_path: Path) -> None:
    settings = scores_of(tmp_path / "scores.tsv", {})
    with pytest.raises(UserError, match=r"stages.0.teacher: its scores .* all equal"):
        train(
            "none", corpus(), {**settings, "stages.0.loss": {"name": "distillation", "loss": loss}}, tmp_path / "store"
        )


def test_a_refused_training_is_refused_again(tmp_path: Path) -> None:
    """Its first steps leave no checkpoint from which the same command would go on."""
    settings = {"objective.encoder_mask_ratio": 1e-9, "pretrain.checkpoint_every": 2}
    for _ in range(2):
        with pytest.raises(UserError, match="none of the first 6 steps had a gradient"):
            train("mlm", corpus(), settings, tmp_path)


def test_a_training_that_learns_is_not_refused(tmp_path: Path) -> None:
    """One query a step with mined negatives; a teacher with an order; a rate that begins near 0; a cached gradient; a
    single relevant passage with negatives.
    """
    mined = {"stages.0.negatives": ["bm25"], "stages.0.per_query": 2, "stages.0.train.batch_size": 1}
    taught = scores_of(tmp_path / "scores.tsv", {0: 3.0})
    cached = {"stages.0.train.micro_batch": 1, "stages.0.train.warmup": 1.0, "stages.0.train.decay": 0.0}
    for given, settings in (
        (corpus(), mined),
        (corpus(), taught),
        (corpus(), cached),
        (corpus(relevant=[0] * 40), mined),
    ):
        losses = train("none", given, settings, tmp_path / "store").losses["finetune.0"]
        assert len(losses) == 6 and any(losses)


@pytest.mark.parametrize("name", sorted(PRETRAINING))
def test_a_method_that_tells_texts_apart_needs_two(name: str) -> None:
    recipe = next(
        recipe for recipe in map(RECIPES.__getitem__, RECIPES) if getattr(recipe().objective, "name", "") == name
    )()
    alone = override(recipe, {"pretrain.batch_size": 1, "backbone.dropout": 0.1})
    if name in ("cocondenser", "diffcse", "ict", "simcse", "spider", "weak_pairs"):
        with pytest.raises(UserError, match=rf"pretrain.batch_size = 1 with objective.name = {name}: .*batch_size=2"):
            alone.check()
    else:
        alone.check()
