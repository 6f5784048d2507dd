from pathlib import Path

import pytest

from midmask.corpora import CorpusConfig, open_corpus
from midmask.errors import UserError
from tests.support.corpora.collections import prepared, rows, write

COLLECTION = "".join(f"{n}\tpassage number {n}\n" for n in range(30)).encode()


def write_msmarco(folder: Path) -> None:
    """The official names: train with TREC's four columns, dev.small too, a packed collection."""
    write(folder / "collection.tsv.gz", COLLECTION)
    write(folder / "queries.train.tsv", b"".join(b"%d\twhat is %d\n" % (100 + n, n) for n in range(20)))
    write(folder / "queries.dev.small.tsv", b"".join(b"%d\twhat is %d\n" % (200 + n, n) for n in range(10)))
    write(folder / "qrels.train.tsv", b"".join(b"%d\t0\t%d\t1\n" % (100 + n, n) for n in range(20)))
    write(folder / "qrels.dev.small.tsv", b"".join(b"%d\t0\t%d\t1\n" % (200 + n, n) for n in range(10)))


def test_the_official_layout(tmp_path: Path) -> None:
    write_msmarco(tmp_path / "msmarco")
    result = prepared(f"msmarco:{tmp_path}/msmarco", tmp_path / "out")
    assert (result["passages"], result["queries"], result["rows_read"]) == (30, 30, 90)
    docs = rows(tmp_path / "out/docs")
    assert [docs[n] for n in (0, 9, -1)] == [
        {"doc_id": str(n), "title": "", "text": f"passage number {n}"} for n in (0, 9, 29)
    ]
    qrels = rows(tmp_path / "out/qrels.parquet")
    assert {"split": "train", "query_id": "100", "doc_id": "0", "grade": 1} in qrels
    assert result["splits"]["train"] == {"queries": 20, "judgements": 20}
    assert result["splits"]["dev"]["queries"] + result["splits"]["test"]["queries"] == 10
    assert result["splits_made_here"] == ["dev", "test"] and "half of dev" in result["split_rule"]


@pytest.mark.parametrize(
    ("lines", "grade"),
    [(b"100\t0\t3\t2\n", 2), (b"100 0 3 2\n", 2), (b"100\t3\t2\n", 2), (b"100\t3\n", 1), (b"pid\tqid\n3\t100\n", 1)],
)
def test_every_column_layout_of_judgements(tmp_path: Path, lines: bytes, grade: int) -> None:
    write_msmarco(tmp_path / "in")
    write(tmp_path / "in/qrels.train.tsv", lines)
    prepared(f"msmarco:{tmp_path}/in", tmp_path / "out")
    train = [row for row in rows(tmp_path / "out/qrels.parquet") if row["split"] == "train"]
    assert train == [{"split": "train", "query_id": "100", "doc_id": "3", "grade": grade}]


def test_judgements_of_no_known_layout_are_refused(tmp_path: Path) -> None:
    write_msmarco(tmp_path)
    write(tmp_path / "qrels.train.tsv", b"1 Q0 2 3 0.5 tag\n")
    with pytest.raises(UserError, match=r"qrels\.train\.tsv: its rows have 6 columns; wanted are 4"):
        open_corpus(CorpusConfig(name=f"msmarco:{tmp_path}"))


def test_two_files_for_one_split_are_refused(tmp_path: Path) -> None:
    write_msmarco(tmp_path)
    write(tmp_path / "qrels.dev.tsv", b"200\t0\t1\t1\n")
    with pytest.raises(UserError, match="both are judgements of the split 'dev'"):
        open_corpus(CorpusConfig(name=f"msmarco:{tmp_path}"))


@pytest.mark.parametrize("pattern", ["collection", "queries.", "qrels."])
def test_what_is_missing_is_named(tmp_path: Path, pattern: str) -> None:
    write_msmarco(tmp_path)
    for file in tmp_path.glob(f"{pattern}*"):
        file.unlink()
    with pytest.raises(UserError, match=rf"{pattern}.*is missing; wanted layout: collection\.tsv"):
        open_corpus(CorpusConfig(name=f"msmarco:{tmp_path}"))
