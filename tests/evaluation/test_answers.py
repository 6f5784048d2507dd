"""Answer strings against DPR's own rule, spelt out with the `regex` package; the step that evaluates a ranking."""

import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from midmask.core.randomness import fixed_sample
from midmask.corpora.writer import ANSWERS, DOCS, QRELS
from midmask.errors import UserError
from midmask.evaluation import measures
from midmask.evaluation.step import EvaluateConfig, answer_qrels, by_answers, evaluate_ranked, join_answers
from midmask.retrieve import ranked
from midmask.retrieve.bm25.search import Bm25Config
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.retrieve.collection import ranked_by_bm25, ranking

TOKENS = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE + regex.UNICODE + regex.MULTILINE)


def tokens(text: str) -> list[str]:
    return [match.group().lower() for match in TOKENS.finditer(unicodedata.normalize("NFD", text))]


def has_answer(answers: list[str], text: str) -> bool:
    """DPR's loop, but for answers without a token, which it finds everywhere."""
    own = tokens(text)
    for answer in map(tokens, answers):
        for start in range(len(own) - len(answer) + 1):
            if answer and answer == own[start : start + len(answer)]:
                return True
    return False


words = st.lists(st.sampled_from(["New", "york", "YORK", "é", "e\u0301", "-", "20th", "20", "\t", "\u00a0", "$3", "½"]))
# `regex` may know a newer Unicode than Python does; what Python does not know is left out.
assigned = st.characters(exclude_categories=("Cn", "Cs"))
texts = st.one_of(words.map(" ".join), words.map("".join), st.text(assigned, max_size=12))


@settings(max_examples=300)
@given(texts)
def test_tokens_are_dprs(text: str) -> None:
    assert join_answers(text).strip("\t").split("\t") == (tokens(text) or [""])


@settings(max_examples=300)
@given(st.lists(texts, max_size=3), texts)
@example(["July 20"], "on July 20th")
@example(["York"], "NEWYORK")
@example([""], "an answer without a token")
@example(["e\u0301t\u00e9"], "\u00c9te\u0301 is summer")
def test_an_answer_is_found_where_dpr_finds_it(answers: list[str], text: str) -> None:
    assert any((needle := join_answers(answer)) and needle in join_answers(text) for answer in answers) == has_answer(
        answers, text
    )


TEXTS = {"a": "The city of New York.", "b": "newyork", "c": "York is old; New is newer", "d": "it was NEW  YORK"}
GIVEN = {"q1": ["New York"], "q2": ["old", "newyork"], "q3": [" \u200b"], "q4": ["it"]}


def write_corpus(place: Place, answers: dict[str, list[str]]) -> Artifact:
    for number, name in enumerate(TEXTS):  # a file each: judged file by file
        row = pa.table([[name], ["New York"], [TEXTS[name]]], schema=DOCS)
        with (place / "docs" / f"{number:05d}.parquet").writing() as stream:
            pq.write_table(row, stream)
    table = pa.table([["test"] * len(answers), list(answers), list(answers.values())], schema=ANSWERS)
    for file, rows in {"answers": table, "qrels": QRELS.empty_table()}.items():
        with (place / f"{file}.parquet").writing() as stream:
            pq.write_table(rows, stream)
    return Artifact(
        place, {"result": {"name": "qa", "passages": len(TEXTS), "splits_made_here": [], "split_rule": "made up"}}
    )


def listed(found: dict[str, str]) -> pa.Table:
    rows = [(query, doc, -float(place)) for query, docs in found.items() for place, doc in enumerate(docs)]
    return ranked.order(pa.table([list(column) for column in zip(*rows, strict=True)], names=ranked.SCHEMA.names[:3]))


def test_what_was_retrieved_is_judged_and_titles_do_not_count(tmp_path: Path) -> None:
    corpus = write_corpus(Place(str(tmp_path)), GIVEN)
    answers = pq.read_table(tmp_path / "answers.parquet")
    found = listed({"q1": "bcad", "q2": "ca", "q3": "a", "stranger": "a"})
    rows = answer_qrels(found, answers, corpus.place / "docs").to_pylist()
    grades = {(row["query_id"], row["doc_id"]): row["grade"] for row in rows}
    right = {("q1", "a"), ("q1", "d"), ("q2", "c")}
    assert {pair for pair, grade in grades.items() if grade} == right and len(grades) == 4 + 2 + 1 + 1
    assert grades["q4", ""] == 0 and {row["split"] for row in rows} == {"test"}
    values = measures.evaluate(found, pa.Table.from_pylist(rows, QRELS), "test", ["Success@1", "Success@3"])
    assert measures.by_query(values, "Success@1") == {"q1": 0, "q2": 1, "q3": 0, "q4": 0}
    assert measures.by_query(values, "Success@3") == {"q1": 1, "q2": 1, "q3": 0, "q4": 0}


def test_a_measure_that_answers_cannot_tell_is_refused_by_name(tmp_path: Path) -> None:
    corpus = write_corpus(Place(str(tmp_path / "corpus")), GIVEN)
    ranked.write(Place(str(tmp_path / "bm25/ranked/test.parquet")), [listed({"q1": "bcad"})])
    inputs = {"corpus": corpus, "ranked": Artifact(Place(str(tmp_path / "bm25")), {"result": {}})}
    out = Place(str(tmp_path / "out"))
    with pytest.raises(UserError, match=r"measure 'nDCG@10': split 'test' has answer strings but no judgements"):
        evaluate_ranked(EvaluateConfig(split="test", measures=("nq", "nDCG@10")), inputs, out)
    result = evaluate_ranked(EvaluateConfig(split="test"), inputs, out)
    assert result["measures"] == {"Success@5": 0.25, "Success@20": 0.25, "Success@100": 0.25}
    assert by_answers(["RR@10", "Success@3"]) == ["Success@3"]


@pytest.fixture(scope="module")
def ranking_of_words(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    root = Place(str(tmp_path_factory.mktemp("ranking")))
    return {"ranked": ranking(inputs, root, depth=60, split="dev", judged="any"), "corpus": inputs["corpus"]}


def test_the_step_keeps_the_run_and_the_values_it_reports(inputs, ranking_of_words, out):
    result = evaluate_ranked(EvaluateConfig(depth=40), ranking_of_words, out)
    assert set(result["measures"]) == {"nDCG@10", "RR@10", "R@100"}
    assert (result["queries"], result["without_results"], result["unjudged"]) == (10, 0, 0)
    assert (result["corpus"], result["split"], result["split_made_here"]) == ("words", "dev", False)
    with (out / "per_query" / "words.dev.parquet").reading() as stream:
        per_query = pq.read_table(stream)
    assert per_query.schema.names == ["query_id", "measure", "value"]
    assert measures.aggregate(per_query) == result["measures"]
    run = ranked.read_trec(out / "runs" / "words.dev.trec.gz")
    found = ranked.read(ranking_of_words["ranked"].place / "ranked" / "dev.parquet")
    columns = ["query_id", "doc_id", "rank"]
    first = [row for row in found.select(columns).to_pylist() if row["rank"] <= 40]
    assert run.select(columns).to_pylist() == first
    assert len(run) == 10 * 40
    # A stranger's tool, ranking_of_words the run file alone, agrees.
    import ir_measures

    qrels = pq.read_table((inputs["corpus"].place / "qrels.parquet").uri).to_pylist()
    dev = [ir_measures.Qrel(row["query_id"], row["doc_id"], row["grade"]) for row in qrels if row["split"] == "dev"]
    scored = list(ir_measures.read_trec_run(str(out.local() / "runs" / "words.dev.trec.gz")))
    values = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in result["measures"]], dev, scored)
    assert {str(name): value for name, value in values.items()} == pytest.approx(result["measures"])


def test_a_sample_of_queries_is_judged_alone(ranking_of_words, out):
    whole = evaluate_ranked(EvaluateConfig(), ranking_of_words, Place(f"{out}-whole"))
    sampled = evaluate_ranked(EvaluateConfig(max_queries=4), ranking_of_words, out)
    assert (whole["queries"], sampled["queries"], sampled["without_results"]) == (10, 4, 0)
    values = [pq.read_table((place / "per_query" / "words.dev.parquet").uri) for place in (Place(f"{out}-whole"), out)]
    full, few = (measures.by_query(table, "RR@10") for table in values)
    assert set(few) == set(fixed_sample([f"q{row}" for row in range(0, 40, 4)], 4))
    assert few == {name: full[name] for name in few}


def test_bm25_is_evaluated_like_any_other_system(inputs, out):
    bm25 = Place(f"{out}-bm25")
    listed = Artifact(bm25, {"result": ranked_by_bm25(Bm25Config(), inputs, bm25)})
    ranking_of_words = {"ranked": listed, "corpus": inputs["corpus"]}
    result = evaluate_ranked(EvaluateConfig(depth=20), ranking_of_words, out)
    # Queries are words of their passage, so that words find it; the random encoder above does not.
    assert result["measures"]["R@100"] == 1.0 and result["measures"]["RR@10"] > 0.8
    assert max(ranked.read_trec(out / "runs" / "words.dev.trec.gz")["rank"].to_pylist()) == 20
    with pytest.raises(UserError, match=r"no ranking of split 'train'.*dev"):
        evaluate_ranked(EvaluateConfig(split="train"), ranking_of_words, out)
    with pytest.raises((UserError, ValidationError), match="did you mean 'nDCG'"):
        EvaluateConfig(measures=("nDGC@10",))
