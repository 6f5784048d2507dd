"""Measures against their definitions and trec_eval; sets of measures and of BEIR's collections by name. Answer strings
against DPR's own rule, spelt out with the `regex` package; the step that evaluates a ranking.
"""

import math
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from midmask.core.randomness import fixed_sample
from midmask.corpora.writer import ANSWERS, QRELS
from midmask.corpora.writer import DOCS as PASSAGE_SCHEMA
from midmask.errors import UserError
from midmask.evaluation import groups, measures
from midmask.evaluation import measures as presets
from midmask.evaluation.step import EvaluateConfig, answer_qrels, by_answers, evaluate_ranked, join_answers
from midmask.retrieve import ranked
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.corpora.layouts import write_arguana
from tests.support.retrieve.collection import ranking

NAMES = ["nDCG@10", "RR@10", "R@100", "R(rel=2)@3", "AP", "P@5", "Success@1", "nDCG"]

DOCS = [f"d{row}" for row in range(15)]
QUERIES = [f"q{row}" for row in range(5)]

Run = dict[str, dict[str, float]]

runs = st.dictionaries(
    st.sampled_from(QUERIES),
    st.dictionaries(st.sampled_from(DOCS), st.sampled_from([0.0, 0.25, 1.0, 1.0 + 2**-40])),
    max_size=5,
)
judgements = st.dictionaries(
    st.sampled_from(QUERIES), st.dictionaries(st.sampled_from(DOCS), st.integers(-3, 4), min_size=1), min_size=1
)


def listed(run: Run) -> pa.Table:
    rows = [(query, doc, score) for query, docs in run.items() for doc, score in docs.items()]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    types = [pa.string(), pa.string(), pa.float32()]
    return ranked.order(
        pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)],
            ["query_id", "doc_id", "score"],
        )
    )


def judged(grades: dict[str, dict[str, int]], split: str = "dev") -> pa.Table:
    rows = [(split, query, doc, grade) for query, docs in grades.items() for doc, grade in docs.items()]
    return pa.table([list(column) for column in zip(*rows, strict=True)], ["split", "query_id", "doc_id", "grade"])


def by_hand(name: str, order: list[str], grades: dict[str, int]) -> float:
    """The measures' definitions, spelt out in float64; relevant is grade >= 1 unless rel= says otherwise."""
    gains = [max(0, grades.get(doc, 0)) for doc in order]
    least = 2 if "rel=2" in name else 1
    relevant = sum(grade >= least for grade in grades.values())
    cut = int(name.split("@")[1]) if "@" in name else len(order)
    hits = [gain >= least for gain in gains[:cut]]
    if name.startswith("nDCG"):
        ideal = sorted((max(0, grade) for grade in grades.values()), reverse=True)[: cut if "@" in name else None]
        best = sum(gain / math.log2(place + 2) for place, gain in enumerate(ideal))
        return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:cut])) / best if best else 0.0
    if name.startswith("RR"):
        return 1 / (hits.index(True) + 1) if any(hits) else 0.0
    if name.startswith("R"):
        return sum(hits) / relevant if relevant else 0.0
    if name.startswith("P"):
        return sum(hits) / cut
    if name.startswith("Success"):
        return float(any(hits))
    precisions = [sum(hits[: place + 1]) / (place + 1) for place, hit in enumerate(hits) if hit]
    return sum(precisions) / relevant if relevant else 0.0


OFFICIAL = {
    "nDCG@10": (1, "ndcg_cut_10"), "nDCG": (1, "ndcg"), "R@100": (1, "recall_100"), "AP": (1, "map"),
    "AP(rel=2)": (2, "map"), "AP@5": (1, "map_cut_5"), "RR": (1, "recip_rank"), "RR@10": (1, "recip_rank"),
    "RR(rel=2)": (2, "recip_rank"), "R(rel=2)@5": (2, "recall_5"), "P(rel=2)@5": (2, "P_5"),
    "Success@1": (1, "success_1"),
}  # fmt: skip
"""ir-measures' name -> the least relevant grade and trec_eval's name."""


def trec_eval(run: Run, grades: dict[str, dict[str, int]], level: int) -> Run:
    """The official tool's values; it cannot bear grades below -1 alone, which gain what 0 gains."""
    least = {query: {doc: max(0, grade) for doc, grade in docs.items()} for query, docs in grades.items()}
    names = {name for _, name in OFFICIAL.values()}
    return pytrec_eval.RelevanceEvaluator(least, names, relevance_level=level).evaluate(run)


def ranks(found: pa.Table) -> Run:
    """query -> document -> negative rank, in the order of the list."""
    run: Run = {}
    for row in found.to_pylist():
        run.setdefault(row["query_id"], {})[row["doc_id"]] = -float(row["rank"])
    return run


@settings(max_examples=60)
@given(runs, judgements)
def test_every_measure_is_its_definition_on_the_list_whose_ties_are_broken(run, grades):
    """Scores that differ by 2^-40 are one score in single precision: the document id decides."""
    per_query = measures.evaluate(listed(run), judged(grades), "dev", NAMES).to_pylist()
    wanted = sorted((query, name) for query in grades for name in NAMES)
    assert [(row["query_id"], row["measure"]) for row in per_query] == wanted
    for row in per_query:
        docs = run.get(row["query_id"], {})
        order = sorted(docs, key=lambda doc: (-(1.0 if docs[doc] > 1 else docs[doc]), doc))
        assert row["value"] == pytest.approx(by_hand(row["measure"], order, grades[row["query_id"]]), abs=1e-9), row


@settings(max_examples=60)
@given(runs, judgements)
def test_values_are_those_of_trec_eval_given_the_list_whose_ties_are_broken(run, grades):
    """Queries that the run lacks: trec_eval leaves them out, `trec_eval -c` counts 0, and so does midmask."""
    found = listed(run)
    strict = ranks(found)
    official = {level: trec_eval(strict, grades, level) for level in (1, 2)}
    first_ten = trec_eval({query: dict(list(docs.items())[:10]) for query, docs in strict.items()}, grades, 1)
    rows = measures.evaluate(found, judged(grades), "dev", list(OFFICIAL)).to_pylist()
    assert len(rows) == len(grades) * len(OFFICIAL)
    for row in rows:
        level, name = OFFICIAL[row["measure"]]
        values = first_ten if row["measure"] == "RR@10" else official[level]
        assert (row["query_id"] in values) == (row["query_id"] in strict)
        assert row["value"] == pytest.approx(values.get(row["query_id"], {name: 0.0})[name], abs=1e-12), row


@pytest.mark.parametrize(("place", "expected"), [(1, 1.0), (10, 0.1), (11, 0.0)])
def test_a_cut_reciprocal_rank_sees_its_last_place_and_no_further(place, expected):
    docs = {f"d{row:02}": -float(row) for row in range(1, 13)}
    found = measures.evaluate(listed({"q": docs}), judged({"q": {f"d{place:02}": 1}}), "dev", ["RR@10", "RR", "AP"])
    assert measures.aggregate(found) == pytest.approx({"RR@10": expected, "RR": 1 / place, "AP": 1 / place})


def test_queries_without_results_score_0_and_queries_without_judgements_are_counted():
    found, qrels = listed({"q0": {"a": 1.0}, "x": {"a": 1.0}}), judged({"q0": {"a": 1}, "q1": {"a": 1}, "q2": {"b": 0}})
    per_query = measures.evaluate(found, qrels, "dev", ["RR@10"])
    assert measures.by_query(per_query, "RR@10") == {"q0": 1.0, "q1": 0.0, "q2": 0.0}
    counts = {"queries": 3, "without_results": 2, "without_relevant": 1}
    assert measures.coverage(found, qrels, "dev") == counts
    assert measures.aggregate(per_query) == {"RR@10": pytest.approx(1 / 3)}


def test_only_the_split_counts():
    qrels = pa.concat_tables([judged({"q": {"a": 1}}), judged({"q": {"b": 1}}, "test")])
    found = listed({"q": {"a": 2.0, "b": 1.0}})
    assert measures.aggregate(measures.evaluate(found, qrels, "test", ["RR@10"])) == {"RR@10": 0.5}
    with pytest.raises(UserError, match=r"split 'tset': no judgements. Known: dev, test\."):
        measures.evaluate(found, qrels, "tset", ["RR@10"])


def test_a_mistyped_measure_is_one_line():
    for names, complaint in ((["NRBP"], "nothing installed can compute it"), (["RR@10", "MRR@10"], "twice")):
        with pytest.raises(UserError, match=complaint) as caught:
            measures.parse(names)
        assert "\n" not in str(caught.value)


def test_recall_at_1000_waits_for_a_large_corpus_and_a_deep_list():
    assert measures.default_measures(1398, 1000) == ["nDCG@10", "RR@10", "R@100"]
    assert measures.default_measures(20_958, 100) == ["nDCG@10", "RR@10", "R@100"]
    assert measures.default_measures(20_958, 1000)[-1] == "R@1000"


def test_every_preset_is_what_ir_measures_prints() -> None:
    for name, wanted in presets.PRESETS.items():
        assert [str(measure) for measure in measures.parse(wanted)] == list(wanted), name


def test_presets_and_measures_stand_side_by_side_each_once() -> None:
    found = presets.expand(["P@5", "beir", "nDCG@10", "sigir23"])
    assert found == ("P@5", "nDCG@10", "R@100", "RR@10", "R@1000")
    assert EvaluateConfig(measures=("beir", "AP")).measures == ("nDCG@10", "R@100", "AP")
    with pytest.raises(UserError, match=r"unknown measure 'sigir24'.*sigir23"):
        presets.expand(["sigir24"])
    with pytest.raises(UserError, match="named twice"):
        presets.expand(["P@5", "P@5"])


def test_the_groups_have_as_many_sets_as_their_names_say() -> None:
    assert [len(groups.GROUPS[name]) for name in ("beir13", "beir14", "beir18")] == [13, 14, 18]
    assert set(groups.BEIR14) - set(groups.BEIR13) == {"cqadupstack"}
    assert [len(set(groups.folders(name))) for name in ("beir13", "beir14", "beir18")] == [13, 13 + 12, 17 + 12]


def test_an_average_counts_cqadupstack_once() -> None:
    """CoT-MoTE's and DupMAE's printed rows, forums all at CQADupStack's value."""
    cotmote = [75.2, 33.1, 57.3, 66.8, 35.3, 50.2, 29.0, 75.4, 42.0, 16.7, 74.1, 24.8, 71.0]
    values = dict(zip(groups.BEIR13, cotmote, strict=True)) | dict.fromkeys(groups.FORUMS, 34.8)
    assert groups.group_average("beir14", values) == pytest.approx(48.98, abs=0.005)
    draw = np.random.default_rng(0).random(12)
    values |= dict(zip(groups.FORUMS, 100 * draw, strict=True))
    assert groups.group_average("beir14", values) == pytest.approx((sum(cotmote) + 100 * draw.mean()) / 14)
    assert groups.group_average("beir13", values) == pytest.approx(sum(cotmote) / 13)
    with pytest.raises(UserError, match="beir18: no value for bioasq, signal1m, trec-news, robust04"):
        groups.group_average("beir18", values)


def test_all_that_is_missing_is_named_with_the_layout(tmp_path: Path) -> None:
    for folder in groups.folders("beir14"):
        if folder != "fiqa":
            write_arguana(tmp_path / folder, packed=len(folder) % 2 == 0)
    (tmp_path / "cqadupstack/gis/qrels/test.tsv").unlink(missing_ok=True)
    (tmp_path / "cqadupstack/gis/qrels/test.tsv.gz").unlink(missing_ok=True)
    with pytest.raises(UserError) as error:
        groups.group_corpora("beir14", str(tmp_path))
    assert "fiqa: the folder; cqadupstack/gis: qrels/test.tsv" in str(error.value)
    write_arguana(tmp_path / "fiqa")
    found = groups.group_corpora("beir13", str(tmp_path))
    assert found["scifact"].name == f"beir:{tmp_path}/scifact" and found["scifact"].splits == "official"
    with pytest.raises(UserError, match=r"unknown group of BEIR sets 'beir12'.*Known: beir13, beir14, beir18"):
        groups.group_corpora("beir12", str(tmp_path))


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
    found = any((needle := join_answers(answer)) and needle in join_answers(text) for answer in answers)
    assert found == has_answer(answers, text)


PASSAGES = {"a": "The city of New York.", "b": "newyork", "c": "York is old; New is newer", "d": "it was NEW  YORK"}
GIVEN = {"q1": ["New York"], "q2": ["old", "newyork"], "q3": [" \u200b"], "q4": ["it"]}


def write_corpus(place: Place, answers: dict[str, list[str]]) -> Artifact:
    for number, name in enumerate(PASSAGES):  # a file each: judged file by file
        row = pa.table([[name], ["New York"], [PASSAGES[name]]], schema=PASSAGE_SCHEMA)
        with (place / "docs" / f"{number:05d}.parquet").writing() as stream:
            pq.write_table(row, stream)
    table = pa.table([["test"] * len(answers), list(answers), list(answers.values())], schema=ANSWERS)
    for file, rows in {"answers": table, "qrels": QRELS.empty_table()}.items():
        with (place / f"{file}.parquet").writing() as stream:
            pq.write_table(rows, stream)
    result = {"name": "qa", "passages": len(PASSAGES), "splits_made_here": [], "split_rule": "made up"}
    return Artifact(place, {"result": result})


def ranked_list(found: dict[str, str]) -> pa.Table:
    rows = [(query, doc, -float(place)) for query, docs in found.items() for place, doc in enumerate(docs)]
    return ranked.order(pa.table([list(column) for column in zip(*rows, strict=True)], names=ranked.SCHEMA.names[:3]))


def test_what_was_retrieved_is_judged_and_titles_do_not_count(tmp_path: Path) -> None:
    corpus = write_corpus(Place(str(tmp_path)), GIVEN)
    answers = pq.read_table(tmp_path / "answers.parquet")
    found = ranked_list({"q1": "bcad", "q2": "ca", "q3": "a", "stranger": "a"})
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
    ranked.write(Place(str(tmp_path / "bm25/ranked/test.parquet")), [ranked_list({"q1": "bcad"})])
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
    assert (result["queries"], result["without_results"]) == (10, 0)
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


def test_a_split_without_a_ranking_and_an_unknown_measure_are_refused(ranking_of_words, out):
    with pytest.raises(UserError, match=r"no ranking of split 'train'.*dev"):
        evaluate_ranked(EvaluateConfig(split="train"), ranking_of_words, out)
    with pytest.raises((UserError, ValidationError), match="did you mean 'nDCG'"):
        EvaluateConfig(measures=("nDGC@10",))
