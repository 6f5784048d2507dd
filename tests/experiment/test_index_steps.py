"""Indexes of vectors in a plan: shared by the searches of all splits, and refused where they mean nothing."""

from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.experiment.plan import Step, plan
from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.retrieve.index_training import TRAINING_ROWS
from tests.support.corpora.collections import write_beir


@pytest.fixture
def retromae(tmp_path: Path) -> Recipe:
    """On a collection with a test split alone."""
    write_beir(tmp_path / "few")
    for split in ("train", "dev"):
        (tmp_path / "few" / "qrels" / f"{split}.tsv").unlink()
    return override(RECIPES["retromae"](), {"corpus.name": f"beir:{tmp_path}/few"})


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
    twice, codes = ranked(rescore=2), ranked(rescore=0)
    assert twice.config.rescore == 2 and codes.config.rescore == 0 and twice.inputs["index"] == dev.inputs["index"]
    assert len({twice.fingerprint, codes.fingerprint, dev.fingerprint}) == 3
    learning = {"IVF16,Flat": True, "SQ8": True, "OPQ8_64,PQ8": True, "SQfp16": False, "HNSW8": False}
    for index, learns in learning.items():
        own = ranked(index=index, nprobe=None).inputs["index"].config.training_rows
        assert own == (TRAINING_ROWS if learns else None), index
    bm25 = [
        steps.bm25_evaluation(config).fingerprint for config in (exact, approximate.model_copy(update={"rescore": 0}))
    ]
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
    assert {name: against.inputs[name] for name in ("passages", "tokens")} == {
        name: whole.inputs[name] for name in ("passages", "tokens")
    }
    assert ranked(index="IVF16,Flat", depth=5).inputs["exact"].config.depth == 6


def test_an_index_of_words_is_planned_where_words_alone_are_searched(retromae: Recipe) -> None:
    asked = override(retromae, {"evaluation.index": "Seismic", "evaluation.query_cut": 5})
    with pytest.raises(UserError, match=r"evaluation\.index = Seismic: words are not all that is searched; leave it"):
        plan(asked).evaluation(asked.evaluation)
    words = override(asked, {"representation.dense": None, "representation.lexical": "splade"})
    search = plan(words).evaluation(words.evaluation).inputs["ranked"]
    assert search.config.query_cut == 5 and search.inputs["exact"].config.index == "Flat"
    other = plan(words).evaluation(words.evaluation.model_copy(update={"query_cut": 9})).inputs["ranked"]
    assert other.fingerprint != search.fingerprint and other.inputs["index"] == search.inputs["index"]
    hybrid = override(asked, {"representation.lexical": "splade"})
    with pytest.raises(UserError, match=r"words are not all that is searched"):
        plan(hybrid).evaluation(hybrid.evaluation)
    assert plan(hybrid).evaluation(hybrid.evaluation.model_copy(update={"views": "lexical"}))
