"""Judgements of passages that the collection lacks: they stay judgements, in every format, and are counted."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from midmask.artifact import Place
from midmask.corpora import CorpusConfig, prepare
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import json_lines, prepared, rows, write, write_beir
from tests.support.corpora.saved import save_splits, write_saved


def beir(folder: Path) -> str:
    write_beir(folder)
    append(folder / "qrels/test.tsv", b"q2\tgone\t1\n")
    return "beir:"


def msmarco(folder: Path) -> str:
    layouts.write_msmarco(folder)
    append(folder / "qrels.dev.small.tsv", b"201\t0\tgone\t1\n")
    return "msmarco:"


def trec(folder: Path) -> str:
    layouts.write_trec(folder)
    append(folder / "qrels.txt", b"401 0 gone 2\n")
    return "trec:"


def nq(folder: Path) -> str:
    layouts.write_nq(folder)
    layouts.write_dpr_training(folder)
    file = folder / "biencoder-nq-train.json"
    items = json.loads(file.read_text())
    items[0]["positive_ctxs"].append({"psg_id": "gone"})
    items[0]["positive_ctxs"][0]["passage_id"] = "gone"
    file.write_text(json.dumps(items))
    return "nq:"


def tripclick(folder: Path) -> str:
    layouts.write_tripclick(folder)
    append(folder / "benchmark/qrels/qrels.raw.head.test.txt", b"300\t0\tgone\t1\n")
    return "tripclick:"


def hf(folder: Path) -> str:
    write_saved(folder)
    judged = {"query-id": ["q0", "q1"], "corpus-id": ["d0", "gone"], "score": [1.0, 1.0]}
    save_splits(folder / "qrels", {"test": pa.table(judged)})
    return "hf:"


def append(file: Path, data: bytes) -> None:
    file.write_bytes(file.read_bytes() + data)


@pytest.mark.parametrize("layout", [beir, msmarco, trec, nq, tripclick, hf])
def test_the_judgement_stays_in_every_format(layout: Callable[[Path], str], tmp_path: Path) -> None:
    corpus = layouts.read(f"{layout(tmp_path / 'in')}{tmp_path}/in", tmp_path / "out")
    assert "gone" in {row["doc_id"] for row in rows(tmp_path / "out/qrels.parquet")}
    assert rows(tmp_path / "out/missing_passages.parquet") == [{"doc_id": "gone"}]
    assert corpus.result["missing_passages"] == {"passages": 1, "judgements": 1}
    assert corpus.result["rows_quarantined"] == {}


def test_judgements_of_another_collection_are_refused(tmp_path: Path) -> None:
    write_beir(tmp_path / "in")
    docs = [{"_id": f"other-{n}", "text": f"passage {n}"} for n in range(5)]
    write(tmp_path / "in/corpus.jsonl", json_lines(docs))
    with pytest.raises(UserError, match=r"none of the 20 judged passages .*'d\d+', the collection has 'other-0'"):
        prepared(f"beir:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0)


def test_a_sample_of_the_passages_keeps_missing_ones_by_the_same_hash(tmp_path: Path) -> None:
    """What the sample leaves out is no missing passage, and goes with its judgements as before."""
    write_beir(tmp_path / "in", passages=40)
    append(tmp_path / "in/qrels/test.tsv", "".join(f"q2\tgone-{n}\t1\n" for n in range(40)).encode())
    config = CorpusConfig(name=f"beir:{tmp_path}/in", splits="official", max_passages=20)
    result = prepare(config, {}, Place(str(tmp_path / "out")))
    known = {row["doc_id"] for row in rows(tmp_path / "out/docs")}
    judged = {row["doc_id"] for row in rows(tmp_path / "out/qrels.parquet")}
    missing = {row["doc_id"] for row in rows(tmp_path / "out/missing_passages.parquet")}
    assert judged - known == missing and all(name.startswith("gone-") for name in missing)
    assert 5 < len(missing) < 35 and result["missing_passages"]["passages"] == len(missing)
