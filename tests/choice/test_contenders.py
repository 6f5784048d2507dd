"""Who takes part, what tables call it, and that every contender can be planned."""

from midmask.benchmark.layout import recipe_of
from midmask.benchmark.results import SystemKey
from midmask.choice.contenders import (
    AS_IS,
    GPL,
    LEXICAL,
    MINED,
    SCORED,
    SYSTEMS,
    TUNED,
    Contender,
    Size,
    contest,
    first_contenders,
    name_of,
    relatives,
)
from midmask.objectives.finetuning.distillation import Distillation

TEACHER = "/models/cross-encoder"
BENCHMARK = contest("pydocs", SYSTEMS, Size(30, 20), ("dev",), {"backbone.name": "tiny"}, seed=4, teacher=TEACHER)


def every_contender() -> list[Contender]:
    first = first_contenders(SYSTEMS, "minilm")
    return [*first, *(one for contender in first for one in relatives(contender, tuple(SCORED), taught=True))]


def test_all_kinds_take_part_each_with_the_rounds_sizes():
    found = every_contender()
    plain = (LEXICAL, Contender("none", "dense", AS_IS))
    one_of_each = (("retromae", "splade", TUNED), ("mlm", "dense", MINED), ("mlm", "dense", GPL))
    assert {*plain, *(Contender(*one) for one in one_of_each)} < set(found)
    assert all(one.setting != AS_IS for one in first_contenders(SYSTEMS, "tiny")), "its weights are random"
    for contender in found:
        for key in contender.keys:
            recipe = recipe_of(BENCHMARK, key)
            recipe.check()
            if contender not in plain:
                assert {stage.train.steps for stage in recipe.stages} == {20}, contender.label
                assert recipe.objective is None or recipe.pretrain.steps == 30
            joined = (recipe.evaluation.bm25_share, recipe.evaluation.fusion)
            assert joined == ((0.5, "convex") if "BM25" in key.setting else (0.0, "rrf")), contender.label


def test_no_two_contenders_have_one_name():
    names = [name_of(key) for contender in every_contender() for key in contender.keys]
    assert len(set(names)) == len(names)
    assert name_of(SystemKey("none", "none", "dense", AS_IS)) == ("as it is", "dense")
    assert name_of(SystemKey("none", "none", "dense", TUNED)) == ("fine-tuned only", "dense")
    assert name_of(SystemKey("mlm", "corpus", "dense", f"{TUNED} with BM25")) == ("mlm", "dense with BM25")


def test_only_trained_dense_systems_have_relatives_and_simcse_has_no_words():
    def kinds(contender: Contender, *representations: str, taught: bool = False) -> list[tuple[str, str]]:
        return [(one.representation, one.setting) for one in relatives(contender, representations, taught=taught)]

    assert kinds(LEXICAL, *SCORED) == kinds(Contender("mlm", "splade", TUNED), *SCORED) == []
    assert kinds(Contender("simcse", "dense", TUNED), *SCORED) == [("dense", MINED)]
    assert kinds(Contender("mlm", "dense", TUNED), "dense") == [("dense", MINED)]
    assert kinds(Contender("mlm", "dense", TUNED), "dense", taught=True) == [("dense", MINED), ("dense", GPL)]


def test_with_a_teacher_its_margins_are_learned_and_without_one_there_is_no_such_setting():
    (stage,) = recipe_of(BENCHMARK, Contender("mlm", "dense", GPL).keys[0]).stages
    assert isinstance(stage.loss, Distillation.Config) and stage.loss.loss == "margin_mse"
    assert stage.teacher is not None and (stage.teacher.folder, stage.teacher.train) == (TEACHER, None)
    assert name_of(Contender("mlm", "dense", GPL).keys[1]) == ("mlm, GPL", "dense with BM25")
    assert GPL not in contest("pydocs", SYSTEMS, Size(30, 20), ("dev",), {}, seed=4).settings
