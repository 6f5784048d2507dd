"""Run files of other tools: what is taken of them, what is counted, what is refused."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.run_file import RunFileConfig, read_run, run_digest
from tests.support.retrieve.collection import write_parts

DOCS = [f"d{number}" for number in range(8)]
SPLITS = {"dev": ("a", "b", "c"), "test": ("e", "f", "g", "h"), "test.hard": ("e",)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_parts(
        Place(str(tmp_path_factory.mktemp("few"))),
        docs=[(doc, "", f"passage {doc}") for doc in DOCS],
        queries=[(query, "words") for query in "abcdefgh"],
        qrels=[(split, query, "d1", 1) for split, queries in SPLITS.items() for query in queries],
    )


def written(folder: Path, run: Mapping[str, Mapping[str, float]]) -> str:
    lines = [f"{query} Q0 {doc} 1 {score} x\n" for query, own in run.items() for doc, score in own.items()]
    (folder / "run.trec").write_text("".join(lines))
    return str(folder / "run.trec")


def test_the_lists_of_a_split_are_taken_and_everything_else_is_counted(corpus: Artifact, tmp_path: Path) -> None:
    tied = {"d5": 2.0, "d7": 2.0, "elsewhere": 2.0, "d1": 1.0}
    file = written(tmp_path, {"e": tied, "f": {"d0": 1.0}, "g": {"d0": 1.0, "elsewhere": 0.5}, "z": {"d3": 1, "y": 0}})
    for ties, order in (("midmask", ["d5", "d7", "elsewhere"]), ("trec_eval", ["elsewhere", "d7", "d5"])):
        config = RunFileConfig(split="test", ties=ties, file=file)
        out = Place(str(tmp_path / ties))
        result = read_run(config, {"corpus": corpus}, out)
        found = ranked.read(ranked.of_split(out, "test"))
        assert found["query_id"].to_pylist() == ["e"] * 4 + ["f", "g", "g"]
        assert found["doc_id"].to_pylist()[:4] == [*order, "d1"], "a document that nobody has keeps its rank"
        assert result["splits"] == {"test": {"queries": 3, "ranked": 7, "empty_slots": 0}}
        assert result["read"]["run"] == {
            **{"rows": 9, "queries": 4, "longest": 4, "tied": 3, "left_out_queries": 1, "ties": ties},
            **{"unknown_documents": 2, "unknown_rows": 3, "unread_queries": 0, "copies": 0, "copies_left_out": False},
        }


REFUSED = {
    "no query of the split": (
        {"a": {"d1": 1.0}, "b": {"d1": 1.0}},
        r"of its 2 queries, 0 are among the 4 judged queries of words test, and 2 among the 3 of dev: --split dev",
    ),
    "most queries of another": (
        {query: {"d1": 1.0} for query in "abce"},
        r"of its 4 queries, 1 are among the 4 judged queries of words test, and 3 among the 3 of dev: --split dev",
    ),
    "no judged query at all": ({"17": {"d1": 1.0}}, r"0 are among the 4 .*It has '17', the split 'e'; .*--corpus"),
    "no document": ({"e": {"d77": 1.0}}, r"none of its documents is in words: the run has 'd77', the collection 'd0'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_run_of_something_else_is_refused_with_what_to_type(case: str, corpus: Artifact, tmp_path: Path) -> None:
    run, message = REFUSED[case]
    config = RunFileConfig(split="test", file=written(tmp_path, run))
    with pytest.raises(UserError, match=message):
        read_run(config, {"corpus": corpus}, Place(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_the_digest_is_that_of_the_lines(tmp_path: Path) -> None:
    file = Path(written(tmp_path, {"e": {"d1": 1.0}}))
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(file.read_bytes(), 9))
    assert run_digest(file) == run_digest(packed)
    packed.write_bytes(gzip.compress(file.read_bytes())[:-9])
    with pytest.raises(UserError, match="broken gzip stream"):
        run_digest(packed)
    with pytest.raises(UserError, match=r"absent: there is no such file"):
        run_digest(tmp_path / "absent")
    assert run_digest(file) != run_digest(written(tmp_path, {"e": {"d1": 2.0}}))
