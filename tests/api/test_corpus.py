"""Public names, and corpora of strings, tables and folders: the files they become, and what is refused."""

import gzip
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midmask
from midmask import Corpus, UserError
from midmask.artifact import Place
from tests.support.corpora import layouts

TEXTS = ["a cat sat", "a dog ran", "rain fell"]


def files(corpus: Corpus, storage: Path) -> dict[str, str]:
    """The contents of a stored collection's files, by name."""
    folder = Path(corpus.in_store(Place(str(storage))).place)
    found = {}
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        found[path.relative_to(folder).as_posix()] = text.decode()
    return found


def rows(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_strings_become_a_beir_folder(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(TEXTS, queries=["pet that sits", "weather"], relevant=[0, [2]])
    found = files(corpus, tmp_path)
    assert [(row["_id"], row["text"]) for row in rows(found["corpus.jsonl.gz"])] == [
        ("0", "a cat sat"),
        ("1", "a dog ran"),
        ("2", "rain fell"),
    ]
    assert [row["_id"] for row in rows(found["queries.jsonl.gz"])] == ["0", "1"]
    assert found["qrels/test.tsv"].splitlines()[1:] == ["0\t0\t1", "1\t2\t1"]


def test_the_dicts_of_sentence_transformers_and_beir_are_taken_as_they_are(tmp_path: Path) -> None:
    texts, queries = {"d1": "a cat sat", "d2": "a dog ran"}, {"q1": "pet", "q2": "runner"}
    sets = Corpus.from_texts(texts, queries=queries, relevant={"q1": {"d1"}, "q2": {"d2"}})
    graded = Corpus.from_texts(texts, queries=queries, relevant={"q1": {"d1": 2, "d2": 0}, "q2": "d2"})
    assert files(sets, tmp_path)["qrels/test.tsv"].splitlines()[1:] == ["q1\td1\t1", "q2\td2\t1"]
    assert files(graded, tmp_path)["qrels/test.tsv"].splitlines()[1:] == ["q1\td1\t2", "q1\td2\t0", "q2\td2\t1"]


def test_the_same_texts_are_the_same_collection_and_others_are_another(tmp_path: Path) -> None:
    storage = Place(str(tmp_path))
    first, again = Corpus.from_texts(TEXTS).in_store(storage), Corpus.from_texts(list(TEXTS)).in_store(storage)
    assert first == again
    assert first != Corpus.from_texts(TEXTS[:2]).in_store(storage)
    assert Corpus.from_texts(TEXTS, name="faq").in_store(storage).short_name == "faq"


def test_a_dataframe_gives_its_columns(tmp_path: Path) -> None:
    frame = pa.table({"number": [7, 9], "head": ["Cats", "Dogs"], "body": ["sat", "ran"]}).to_pandas()
    corpus = Corpus.from_dataframe(frame, text="body", title="head", id="number")
    assert rows(files(corpus, tmp_path)["corpus.jsonl.gz"]) == [
        {"_id": "7", "title": "Cats", "text": "sat"},
        {"_id": "9", "title": "Dogs", "text": "ran"},
    ]
    with pytest.raises(UserError, match="unknown column 'bodi'; did you mean 'body'"):
        Corpus.from_dataframe(frame, text="bodi")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": []}, "texts: an empty list"),
        ({"texts": "one string"}, "texts: one string; give a list"),
        ({"texts": TEXTS, "ids": ["a", "b", "a"]}, "the id 'a' stands twice"),
        ({"texts": TEXTS, "ids": ["a", "b"]}, "ids: 2 for 3 texts"),
        ({"texts": ["a", None]}, "texts, id '1': None is no string"),
        ({"texts": TEXTS, "queries": ["pet"]}, "queries without relevant"),
        ({"texts": TEXTS, "queries": ["pet"], "relevant": [0, 1]}, "relevant: 2 for 1 queries"),
        ({"texts": TEXTS, "queries": ["pet"], "relevant": [3]}, "there is no text with the id '3'"),
        ({"texts": TEXTS, "queries": ["pet"], "relevant": [[]]}, "no query has a relevant text"),
        (
            {"texts": TEXTS, "queries": ["a", "b"], "relevant": [0, 1], "splits": {"train": [0]}},
            "the query '1' is in 0 of",
        ),
        ({"texts": TEXTS, "name": "a/b"}, "name = 'a/b'"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Corpus.from_texts(**arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_a_folders_format_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "marco").mkdir()
    layouts.write_msmarco(tmp_path / "marco")
    stored = Corpus.from_texts(TEXTS, queries=TEXTS, relevant=[0, 1, 2]).in_store(Place(str(tmp_path / "store")))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "part.jsonl").write_text('{"text": "a cat"}\n')
    assert repr(Corpus.from_folder(tmp_path / "marco")) == f"Corpus(msmarco:{tmp_path}/marco)"
    assert repr(Corpus.from_folder(stored.place)) == f"Corpus({stored.name})"
    assert repr(Corpus.from_folder(tmp_path / "plain")) == f"Corpus(texts:{tmp_path}/plain)"
    assert repr(Corpus.from_beir(stored.place)) == f"Corpus(beir:{stored.place})"
    assert Corpus.from_folder("pydocs").name == "pydocs"


HEAVY = ("torch", "ray", "mlflow", "transformers", "pyarrow", "numpy", "pydantic", "sentence_transformers", "faiss")


def in_a_fresh_process(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_importing_midmask_imports_nothing_heavy() -> None:
    program = f"import sys, midmask; dir(midmask); print([name for name in {HEAVY} if name in sys.modules])"
    assert in_a_fresh_process(program).strip() == "[]"


def test_no_module_of_the_package_bears_a_public_name() -> None:
    """An import of `midmask.NAME` would put the module in the place of the function."""
    modules = {module.name for module in pkgutil.iter_modules(midmask.__path__)}
    assert not modules & set(midmask.__all__)


def test_every_public_name_is_there_and_listed() -> None:
    assert set(midmask.__all__) <= set(dir(midmask))
    for name in midmask.__all__:
        assert getattr(midmask, name).__doc__, f"{name} has no docstring"
