"""Collections by their id in ir_datasets: the real package, with its own ids and with ids registered here."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from midmask.corpora import CorpusConfig, corpus_identity, open_corpus
from midmask.corpora.irds import split_ids, split_of
from midmask.errors import UserError
from tests.support.corpora.collections import prepared, rows
from tests.support.corpora.registered import register, write_as_beir, write_msmarco


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package's home; it reads where that is when it is imported."""
    folder = tmp_path_factory.mktemp("irds")
    imported = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "ir_datasets"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR_DATASETS_HOME", str(folder / "home"))
        patch.setenv("IR_DATASETS_TMP", str(folder / "tmp"))
        patch.setenv("IR_DATASETS_SKIP_DISK_FREE", "true")
        yield folder / "home"
    for name in [name for name in sys.modules if name.partition(".")[0] == "ir_datasets"]:
        del sys.modules[name]
    sys.modules.update(imported)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that somebody asks for."""
    import requests

    asked: list[str] = []

    def get(url: str, **_: Any) -> None:
        asked.append(url)
        raise requests.exceptions.ConnectionError("there is no network in tests")

    monkeypatch.setattr(requests, "get", get)
    return asked


def tables(out: Path) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows(out / name))) for name in ("docs", "queries.parquet", "qrels.parquet")}


def test_an_id_reads_as_the_same_collection_in_another_format(home: Path, tmp_path: Path) -> None:
    """Titles, grades from 0 to 3 and three splits, one of which the package calls valid."""
    register("ours/graded", tmp_path / "files")
    write_as_beir(tmp_path / "beir")
    result = prepared("ir_datasets:ours/graded", tmp_path / "one", splits="official", bad_rows_threshold=0.0)
    prepared(f"beir:{tmp_path}/beir", tmp_path / "two", splits="official")
    assert tables(tmp_path / "one") == tables(tmp_path / "two")
    assert result["name"] == "ours-graded" and result["rows_read"] == 12 + 8 + 8
    assert {split: own["queries"] for split, own in result["splits"].items()} == {"train": 3, "dev": 2, "test": 3}


def test_an_id_of_the_package_itself_is_read_from_what_it_has_cached(home, tmp_path, calls) -> None:
    write_msmarco(home)
    result = prepared("ir_datasets:msmarco-passage/dev/small", tmp_path / "out", splits="official")
    assert result["name"] == "msmarco-passage-dev-small" and result["passages"] == 12
    names = ("split", "query_id", "doc_id", "grade")
    judged = [tuple(row[name] for name in names) for row in rows(tmp_path / "out/qrels.parquet")]
    assert judged == [("dev", "300", "3", 1), ("dev", "400", "4", 1)]
    assert not calls


@pytest.mark.parametrize("part", ["collection.tsv", "dev/small/queries.tsv", "dev/small/qrels"])
def test_what_is_missing_is_named_and_not_fetched(home: Path, calls: list[str], part: str) -> None:
    write_msmarco(home, leave_out=part)
    with pytest.raises(UserError) as error:
        open_corpus(CorpusConfig(name="ir_datasets:msmarco-passage/dev/small"))
    line = str(error.value)
    kind = {"collection.tsv": "docs"}.get(part, part.rsplit("/", 1)[-1].removesuffix(".tsv"))
    assert f"not on this machine: {kind} of msmarco-passage/dev/small (https://" in line and "\n" not in line
    assert line.endswith(f"type: ir_datasets export msmarco-passage/dev/small {kind} > /dev/null")
    assert not calls


def test_a_users_own_calls_of_the_package_fetch_as_ever(home: Path, calls: list[str]) -> None:
    import requests
    from ir_datasets.util import RequestsDownload

    with pytest.raises(UserError, match="not on this machine"):
        open_corpus(CorpusConfig(name="ir_datasets:beir/scifact"))
    assert not calls
    with pytest.raises(requests.ConnectionError), RequestsDownload("https://host/x", tries=1).stream() as stream:
        stream.read()
    assert calls == ["https://host/x"]


SPLITS = {
    "beir/arguana": {"test": "beir/arguana"},
    "mr-tydi/sw": {split: f"mr-tydi/sw/{split}" for split in ("dev", "test", "train")},
    "nyt/wksup": {"dev": "nyt/wksup/valid", "train": "nyt/wksup/train"},
    "msmarco-passage": {
        **{split: f"msmarco-passage/{split}" for split in ("dev", "train", "trec-dl-hard")},
        **{f"dl{year}": f"msmarco-passage/trec-dl-20{year}" for year in (19, 20)},
    },
}
OF_ONE_SPLIT = {
    "msmarco-passage/dev/small": "dev",
    "antique/train/split200-valid": "dev",
    "msmarco-passage/trec-dl-2019/judged": "dl19",
    "trec-robust04/fold1": "test",
    "train-of-thought/retrieval": "test",
}
REFUSED = {
    "beir/scifacts": r"unknown ir_datasets id 'beir/scifacts'; did you mean 'beir/scifact'\?",
    "beir": "beir has no documents of its own; name one of beir/arguana, beir/climate-fever",
    "msmarco-passage/eval": "has queries but no judgements",
    "": "the id is missing",
}


def test_splits_of_the_packages_own_ids(home: Path) -> None:
    assert {dataset_id: split_ids(dataset_id) for dataset_id in SPLITS} == SPLITS
    assert {dataset_id: split_of(dataset_id) for dataset_id in OF_ONE_SPLIT} == OF_ONE_SPLIT


@pytest.mark.parametrize("name", REFUSED)
def test_ids_that_will_not_do_are_refused(home: Path, name: str) -> None:
    with pytest.raises(UserError, match=REFUSED[name]):
        open_corpus(CorpusConfig(name=f"ir_datasets:{name}"))


def test_records_are_the_identity(home: Path, tmp_path: Path) -> None:
    register("ours/same", tmp_path / "one")
    config = CorpusConfig(name="ir_datasets:ours/same")
    before = corpus_identity(config)
    assert corpus_identity(config) == before and len(before["records"]) == 7
    changed = (tmp_path / "one" / "dev.qrels").read_text().replace("d3 3", "d3 2")
    (tmp_path / "one" / "dev.qrels").write_text(changed)
    after = corpus_identity(config)
    different = {file for file in before["records"] if before["records"][file] != after["records"][file]}
    assert different == {"ir_datasets:ours/same/valid (qrels)"}
