"""Plans: what is shared, what they depend on, `stages.*`, indexes of vectors; finished steps are not computed again."""

from pathlib import Path

import pytest

from midmask.core.config import override
from midmask.errors import UserError
from midmask.experiment.changes import apply_changes, for_each_stage, refuse_idle
from midmask.experiment.events import Begun, Ended, Failed, StepEvent
from midmask.experiment.graph import Step
from midmask.experiment.kinds import KINDS
from midmask.experiment.plan import plan, rungs
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.mining.mine import MineConfig
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.index import TRAINING_ROWS
from midmask.store.place import Place
from tests.support.corpora.collections import write_beir


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    write_beir(tmp_path / "few")
    return f"beir:{tmp_path}/few"


@pytest.fixture
def retromae(corpus: str) -> Recipe:
    return recipe_named("retromae", corpus)


def recipe_named(name: str, corpus: str, **changes: str) -> Recipe:
    return override(RECIPES[name](), {"corpus.name": corpus, **changes})


def test_recipes_share_all_steps_that_their_difference_does_not_touch(retromae):
    other = plan(override(retromae, {"objective.decoder_mask_ratio": 0.9}))
    one = plan(retromae)
    assert one.tokens.fingerprint == other.tokens.fingerprint
    assert one.pretrained.fingerprint != other.pretrained.fingerprint
    assert one.stages[-1].fingerprint != other.stages[-1].fingerprint
    untrained = plan(override(RECIPES["none"](), {"corpus.name": retromae.corpus.name}))
    bm25 = [steps.bm25_evaluation(retromae.evaluation).fingerprint for steps in (one, untrained)]
    assert bm25[0] == bm25[1]


def test_runtime_fields_change_no_fingerprint(retromae):
    slow = override(retromae, {"pretrain.log_every": 1, "pretrain.micro_batch": 4, "stages.0.train.threads": 1})
    evaluation = retromae.evaluation
    assert plan(slow).evaluation(evaluation).fingerprint == plan(retromae).evaluation(evaluation).fingerprint


def test_rungs_are_prefixes_that_go_on_from_each_other_without_changing_the_whole(retromae):
    quarter, half, whole = rungs(retromae, (0.5, 0.25, 1.0), Survey())
    steps = retromae.pretrain.steps
    assert [one.pretrained.optimiser_steps for one in (quarter, half, whole)] == [steps // 4, steps // 2, steps]
    assert whole.pretrained.resume is half.pretrained
    assert half.pretrained.resume is quarter.pretrained
    assert whole.pretrained.fingerprint == plan(retromae).pretrained.fingerprint
    assert plan(retromae, share=1e-9).pretrained.optimiser_steps == 1


def test_the_last_stage_is_evaluated_unless_another_is_given_and_any_stage_mines(retromae):
    recipe = PROTOCOLS["ance"]().on(retromae, "demo")
    steps, mining = plan(recipe), MineConfig()
    first, last = steps.stages
    for model, given in ((last, {}), (last, {"model": last}), (first, {"model": first})):
        ranked = steps.evaluation(recipe.evaluation, **given).inputs["ranked"]
        negatives = steps.mining(mining, model=model).inputs["ranked0"]
        for search in (ranked, negatives):
            assert search.inputs["passages"].inputs["model"] is search.inputs["queries"].inputs["model"] is model


def test_whatever_is_evaluated_or_mined_with_a_model_its_passages_are_encoded_once(retromae):
    steps, evaluation = plan(retromae), retromae.evaluation
    mining = MineConfig(depth=50)
    searches = [
        steps.evaluation(evaluation).inputs["ranked"],
        steps.evaluation(evaluation.model_copy(update={"split": "test", "depth": 7})).inputs["ranked"],
        steps.mining(mining, model=steps.stages[-1]).inputs["ranked0"],
        steps.mining(mining.model_copy(update={"per_query": 3, "min_rank": 5}), model=steps.stages[-1]).inputs[
            "ranked0"
        ],
    ]
    assert len({search.inputs["passages"].fingerprint for search in searches}) == 1
    assert len({search.fingerprint for search in searches}) == 3, "another number of negatives needs no other search"
    shorter = steps.mining(mining.model_copy(update={"passage_length": 32}), model=steps.stages[-1]).inputs["ranked0"]
    assert shorter.inputs["passages"].fingerprint != searches[0].inputs["passages"].fingerprint
    assert shorter.inputs["queries"].fingerprint == searches[2].inputs["queries"].fingerprint


STEPS = ("prepare", "tokenise", "pretrain", "finetune", "encode", "search", "evaluate")


def counting(calls, fails=()):
    def maker(name):
        def make(config, inputs, out, *, log):
            calls.append(name)
            if name in fails:
                raise RuntimeError("killed")
            log(1, {"train/loss": 0.5})
            return {"inputs": sorted(inputs)}

        return make

    return {name: maker(name) for name in STEPS}


def test_each_step_runs_once_after_its_inputs_and_a_second_run_computes_nothing(retromae, tmp_path):
    calls, events, target = [], list[StepEvent](), plan(retromae).evaluation(retromae.evaluation)
    runner = Runner(Place(str(tmp_path / "store")), counting(calls), events.append)
    artifact = runner.compute(target)
    assert sorted(calls) == sorted([*STEPS, "encode"]), "passages and queries are encoded apart"
    assert list(dict.fromkeys(calls)) == list(STEPS)
    assert artifact.result["inputs"] == ["corpus", "ranked"]
    events.clear()
    again = runner.compute(target)
    assert again == artifact
    assert len(calls) == 8
    assert events == [Ended(target, artifact, cached=True)]


def test_a_failed_step_is_tried_again_and_its_inputs_are_not(retromae, tmp_path):
    calls, events, target = [], list[StepEvent](), plan(retromae).stages[0]
    storage = Place(str(tmp_path / "store"))
    with pytest.raises(RuntimeError):
        Runner(storage, counting(calls, fails=("finetune",)), events.append).compute(target)
    begun, failed = events[-2:]
    assert isinstance(begun, Begun) and isinstance(failed, Failed) and str(failed.error) == "killed"
    assert begun.step == failed.step == target and list(failed.lost) == [target]
    Runner(storage, counting(calls)).compute(target)
    assert calls.count("finetune") == 2
    assert calls.count("pretrain") == 1


READ = {"mlm": set(), "cocondenser": {"spans"}, "cotmae_qc": {"pseudo_queries"}, "rom": {"weights"}}
"""What each recipe reads besides tokens."""

CHANGES = {
    "spans": {"spans.span_length": 64},
    "pseudo_queries": {"pseudo_queries.source": "titles"},
    "weights": {"weights.source": "bm25"},
}


@pytest.mark.parametrize("name", READ)
def test_a_pre_training_depends_on_what_it_reads_and_on_nothing_else(corpus, name):
    recipe = recipe_named(name, corpus)
    before = plan(recipe).pretrained
    assert set(before.inputs) == {"tokens", "corpus", *READ[name]}
    for artifact, change in CHANGES.items():
        after = plan(override(recipe, change)).pretrained
        assert (after.fingerprint != before.fingerprint) == (artifact in READ[name]), artifact


def test_a_file_of_queries_counts_by_its_contents(corpus, tmp_path):
    (file := tmp_path / "given").write_text("d\tone")
    recipe = recipe_named("cotmae_qc", corpus, **{"pseudo_queries.source": f"file:{file}"})
    before = plan(recipe).pretrained.fingerprint
    file.write_text("d\tone\nd\tone")
    assert plan(recipe).pretrained.fingerprint != before
    file.unlink()
    with pytest.raises(UserError, match="there is no such file"):
        plan(recipe)


def test_what_a_generators_folder_holds_is_part_of_the_identity(corpus, tmp_path):
    simlm, found = recipe_named("simlm", corpus, **{"objective.generator": str(tmp_path)}), []
    for text in ("{}", '{"other": 1}', "{}"):
        (tmp_path / "config.json").write_text(text)
        found.append(plan(simlm).pretrained.fingerprint)
    assert found[0] == found[2] != found[1]


TWO = PROTOCOLS["ance"]().on(RECIPES["mlm"](), "demo")


def test_a_field_of_every_stage_is_set_in_each_that_has_it_unless_a_later_change_wins() -> None:
    changed = apply_changes(TWO, {"stages.*.train.steps": 7, "stages.1.train.batch_size": 6, "pretrain.steps": 5})
    assert [stage.train.steps for stage in changed.stages] == [7, 7]
    assert [stage.train.batch_size for stage in changed.stages] == [TWO.stages[0].train.batch_size, 6]
    assert changed.pretrain.steps == 5
    both = {"stages.*.train.steps": 7, "stages.1.train.steps": 9}
    for changes, steps in ((both, [7, 9]), (dict(reversed(both.items())), [7, 7])):
        assert [stage.train.steps for stage in apply_changes(TWO, changes).stages] == steps
    taught = PROTOCOLS["retromae_distil"]().on(RECIPES["mlm"](), "demo")
    with_teacher = [number for number, stage in enumerate(taught.stages) if stage.teacher is not None]
    assert 0 < len(with_teacher) < len(taught.stages)
    changes = for_each_stage(taught, {"stages.*.teacher.train.steps": 3})
    assert changes == {f"stages.{number}.teacher.train.steps": 3 for number in with_teacher}


def test_what_no_stage_has_a_place_for_is_refused() -> None:
    refuse_idle(TWO, {"stages.*.train.steps": 7, "pretrain.steps": 5})
    with pytest.raises(UserError, match=r"stages\.\*\.teacher\.train\.steps = 3: no stage of mlm has a teacher"):
        refuse_idle(TWO, {"stages.*.teacher.train.steps": 3})
    with pytest.raises(UserError, match="no stage of mlm is there"):
        refuse_idle(RECIPES["mlm"]().model_copy(update={"stages": ()}), {"stages.*.train.steps": 3})
    with pytest.raises(UserError, match=r"stages\.0\.train\.stepz"):
        apply_changes(TWO, {"stages.*.train.stepz": 3})


def test_searches_of_two_splits_share_one_index_and_only_another_build_makes_another(retromae: Recipe) -> None:
    steps, exact = plan(retromae), retromae.evaluation
    approximate = exact.model_copy(update={"index": "IVF16,Flat", "nprobe": 2})

    def ranked(**changes: object) -> Step:
        return steps.evaluation(approximate.model_copy(update=changes)).inputs["ranked"]

    assert "index" not in steps.evaluation(exact).inputs["ranked"].inputs
    dev, test, wider = ranked(), ranked(split="test"), ranked(nprobe=4)
    assert dev.inputs["index"] == test.inputs["index"] == wider.inputs["index"]
    assert dev.fingerprint != wider.fingerprint
    assert ranked(index="IVF32,Flat").inputs["index"].fingerprint != dev.inputs["index"].fingerprint
    assert ranked(index="HNSW8", nprobe=None).inputs["index"].config.ef_construction is None
    twice = ranked(rescore=2)
    assert twice.config.rescore == 2 and twice.inputs["index"] == dev.inputs["index"]
    assert twice.fingerprint != dev.fingerprint
    for index, learns in {"IVF16,Flat": True, "OPQ8_64,PQ8": True, "SQfp16": False, "HNSW8": False}.items():
        own = ranked(index=index, nprobe=None).inputs["index"].config.training_rows
        assert own == (TRAINING_ROWS if learns else None), index
    bm25 = [steps.bm25_evaluation(config).fingerprint for config in (exact, approximate)]
    assert bm25[0] == bm25[1], "BM25 is searched without any index of vectors"


def test_every_ranking_by_bm25_shares_one_index_which_is_not_in_its_identity(retromae: Recipe) -> None:
    """Evaluations of any split and depth, joined lists and candidates; results of before are found."""
    mined = override(retromae, {"stages.0.negatives": ["bm25"], "stages.0.per_query": 1, "evaluation.bm25_share": 0.5})
    steps, wanted = plan(mined), mined.evaluation
    tuned, joined = steps.stages[-1], steps.evaluation(wanted)
    others = [wanted, wanted.model_copy(update={"split": "test", "depth": 7, "max_queries": 3})]
    targets = [tuned, joined, *(steps.bm25_evaluation(config) for config in others)]
    every = [one for target in targets for one in target.upstream()]
    ranked = {one.fingerprint: one for one in every if one.name == "bm25"}
    assert len(ranked) == 3 and len({one.prepared["index"].fingerprint for one in ranked.values()}) == 1
    assert all(one.identity["inputs"] == {"corpus": steps.corpus.fingerprint} for one in ranked.values())
    assert [one.name for one in every if one.name.startswith("bm25")][:3] == ["bm25_words", "bm25_index", "bm25"]


def test_all_indexes_of_an_encoding_are_held_against_one_exact_search_of_a_sample(retromae: Recipe) -> None:
    """It asks for what they ask for: as deep, as many words; and an exact search has neither."""
    steps, exact = plan(retromae), retromae.evaluation
    words = {"passage_terms": 9, "views": "all"}

    def ranked(**changes: object) -> Step:
        return steps.evaluation(exact.model_copy(update={**words, **changes})).inputs["ranked"]

    whole, ivf, hnsw = ranked(), ranked(index="IVF16,Flat", nprobe=2), ranked(index="HNSW8", ef_search=9)
    assert not {"index", "exact"} & whole.inputs.keys()
    against = ivf.inputs["exact"]
    assert against == hnsw.inputs["exact"] and against.config == whole.config
    assert against.inputs["queries"].name == "sample"
    assert against.inputs["queries"].inputs["queries"] == whole.inputs["queries"] == ivf.inputs["queries"]
    assert all(against.inputs[name] == whole.inputs[name] for name in ("passages", "tokens"))
    assert ranked(index="IVF16,Flat", depth=5).inputs["exact"].config.depth == 6


@pytest.mark.parametrize("views", [{"representation.dense": None}, {}])
def test_an_index_of_dense_vectors_is_refused_where_words_are_searched(
    retromae: Recipe, views: dict[str, None]
) -> None:
    asked = override(retromae, {"evaluation.index": "HNSW8", "representation.lexical": "splade", **views})
    with pytest.raises(UserError, match=r"evaluation\.index = HNSW8: .* that are searched alone; leave it"):
        plan(asked).evaluation(asked.evaluation)


@pytest.mark.parametrize("name", RECIPES)
def test_a_steps_config_is_that_of_its_kind(name: str, corpus: str) -> None:
    recipe = recipe_named(name, corpus)
    for step in plan(recipe).evaluation(recipe.evaluation).upstream():
        assert isinstance(step.config, step.kind.config), step.name


def test_a_kind_is_computed_in_one_way() -> None:
    for kind in KINDS.values():
        assert (kind.setup is None) != (kind.compute is None), kind.name
        assert kind.trains == (kind.runs == "group"), kind.name
