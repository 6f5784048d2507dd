import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.evaluation import measures
from midmask.evaluation.retriever import EvaluateConfig, evaluate_retriever
from midmask.randomness.texts import fixed_sample
from midmask.retrieve import ranked
from midmask.retrieve.bm25 import Bm25Config
from tests.support.retrieve.bm25 import ranked_by_bm25
from tests.support.retrieve.collection import ranking


@pytest.fixture(scope="module")
def given(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Inputs of an evaluation: what a search has ranked, 60 deep."""
    root = Place(str(tmp_path_factory.mktemp("ranking")))
    return {"ranked": ranking(inputs, root, depth=60, split="dev", judged="any"), "corpus": inputs["corpus"]}


def test_the_step_keeps_the_run_and_the_values_it_reports(inputs, given, out):
    result = evaluate_retriever(EvaluateConfig(depth=40), given, out)
    assert set(result["measures"]) == {"nDCG@10", "RR@10", "R@100"}
    assert (result["queries"], result["without_results"], result["unjudged"]) == (10, 0, 0)
    assert (result["corpus"], result["split"], result["split_made_here"]) == ("words", "dev", False)
    with (out / "per_query" / "words.dev.parquet").reading() as stream:
        per_query = pq.read_table(stream)
    assert per_query.schema.names == ["query_id", "measure", "value"]
    assert measures.aggregate(per_query) == result["measures"]
    run = ranked.read_trec(out / "runs" / "words.dev.trec.gz")
    found = ranked.read(given["ranked"].place / "ranked" / "dev.parquet")
    columns = ["query_id", "doc_id", "rank"]
    first = [row for row in found.select(columns).to_pylist() if row["rank"] <= 40]
    assert run.select(columns).to_pylist() == first
    assert len(run) == 10 * 40
    # A stranger's tool, given the run file alone, agrees.
    import ir_measures

    qrels = pq.read_table((inputs["corpus"].place / "qrels.parquet").uri).to_pylist()
    dev = [ir_measures.Qrel(row["query_id"], row["doc_id"], row["grade"]) for row in qrels if row["split"] == "dev"]
    scored = list(ir_measures.read_trec_run(str(out.local() / "runs" / "words.dev.trec.gz")))
    values = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in result["measures"]], dev, scored)
    assert {str(name): value for name, value in values.items()} == pytest.approx(result["measures"])


def test_a_sample_of_queries_is_judged_alone(given, out):
    whole = evaluate_retriever(EvaluateConfig(), given, Place(f"{out}-whole"))
    sampled = evaluate_retriever(EvaluateConfig(max_queries=4), given, out)
    assert (whole["queries"], sampled["queries"], sampled["without_results"]) == (10, 4, 0)
    values = [pq.read_table((place / "per_query" / "words.dev.parquet").uri) for place in (Place(f"{out}-whole"), out)]
    full, few = (measures.by_query(table, "RR@10") for table in values)
    assert set(few) == set(fixed_sample([f"q{row}" for row in range(0, 40, 4)], 4))
    assert few == {name: full[name] for name in few}


def test_bm25_is_evaluated_like_any_other_system(inputs, out):
    bm25 = Place(f"{out}-bm25")
    listed = Artifact(bm25, {"result": ranked_by_bm25(Bm25Config(), inputs, bm25)})
    given = {"ranked": listed, "corpus": inputs["corpus"]}
    result = evaluate_retriever(EvaluateConfig(depth=20), given, out)
    # Queries are words of their passage, so that words find it; the random encoder above does not.
    assert result["measures"]["R@100"] == 1.0 and result["measures"]["RR@10"] > 0.8
    assert max(ranked.read_trec(out / "runs" / "words.dev.trec.gz")["rank"].to_pylist()) == 20
    sampled = evaluate_retriever(EvaluateConfig(max_queries=3), given, Place(f"{out}-sampled"))
    assert (sampled["queries"], sampled["unjudged"]) == (3, 0)
    with pytest.raises(UserError, match=r"no ranking of split 'train'.*dev"):
        evaluate_retriever(EvaluateConfig(split="train"), given, out)
    with pytest.raises((UserError, ValidationError), match="did you mean 'nDCG'"):
        EvaluateConfig(measures=("nDGC@10",))
