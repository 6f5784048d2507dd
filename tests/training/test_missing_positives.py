"""Relevant passages that the collection lacks change no training: they have no text, so they are left out of it."""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig, prepare
from midmask.derived.given import judged_queries
from midmask.mining.filters import FilterConfig
from midmask.mining.mine import MineConfig, mine
from midmask.retrieve.bm25 import Bm25Config
from midmask.teacher.candidates import write_candidates
from midmask.tokens import TokensConfig, tokenise
from midmask.training.pairs import PairExamples
from midmask.training.probe import open_probe
from tests.support.benchmark.tiny import write_collection
from tests.support.retrieve.bm25 import ranked_by_bm25

MISSING = {"train": ["q0\tgone\t1\n", "q1\tlost\t1\n"], "dev": ["q24\tgone\t2\n"]}
"""q0 and q24 have another relevant passage; q1 has no other, for its line is replaced."""


def read(folder: Path, missing: Mapping[str, list[str]]) -> Artifact:
    """The tiny collection without the judgement of q1, prepared."""
    name = write_collection(folder / "in")
    for split in ("train", "dev"):
        file = folder / "in" / "qrels" / f"{split}.tsv"
        lines = [line for line in file.read_text().splitlines(True) if not line.startswith("q1\t")]
        file.write_text("".join([*lines, *missing.get(split, [])]))
    place = Place(str(folder / "corpus"))
    return Artifact(place, {"fingerprint": "c", "result": prepare(CorpusConfig(name=name), {}, place)})


def trained_on(folder: Path, missing: Mapping[str, list[str]]) -> dict[str, object]:
    """What trainings take from judgements: negatives, pairs to score, rows of fine-tuning, pseudo-queries, probe."""
    root = Place(str(folder))
    corpus = read(folder, missing)
    tokens = root / "tokens"
    tokenise(TokensConfig(vocabulary_size=300, max_length=32, query_length=8), {"corpus": corpus}, tokens)
    config, bm25 = Bm25Config(splits=("train",), judged="relevant", depth=20), root / "bm25"
    record = {"fingerprint": "r", "result": ranked_by_bm25(config, {"corpus": corpus}, bm25), "step": "bm25"}
    inputs = {"corpus": corpus, "ranked": Artifact(bm25, {**record, "config": {}, "inputs": {}})}
    mined = mine(MineConfig(depth=20, per_query=3, filters=FilterConfig(relative_margin=0.1)), inputs, root / "mined")
    write_candidates(inputs, root / "scored", split="train", depth=5, queries=100)
    files = {name: root / "mined" / f"{name}.parquet" for name in ("negatives", "queries")}
    rows = PairExamples(tokens, corpus.place, "train", "f", per_query=2, **files).open()
    return {
        "mined": {name: value for name, value in mined.items() if name != "source"},
        "negatives": pq.read_table((root / "mined/negatives.parquet").local()).drop(["list"]).to_pylist(),
        "positives": (root / "mined/negatives.jsonl.gz").read(),
        "pairs": pq.read_table((root / "scored/candidates/00000.parquet").local()).to_pylist(),
        "rows": [rows.names(np.arange(rows.count)), rows.read(np.arange(rows.count), 0, 0)["passage"].rows.tolist()],
        "given": [(line.doc_id, line.texts) for line in judged_queries(corpus.place, "train")],
        "probe": [row.tolist() for row in open_probe(tokens, corpus.place).relevant],
    }


def test_trainings_are_those_without_the_judgements(tmp_path, caplog):
    whole = trained_on(tmp_path / "whole", {})
    assert "left out" not in caplog.text
    with caplog.at_level(logging.INFO):
        found = trained_on(tmp_path / "missing", MISSING)
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        assert found[name] == value, name
    assert "2 relevant passages are not in the collection and are left out" in caplog.text
