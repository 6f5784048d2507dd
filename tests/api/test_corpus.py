"""Public names; corpora of strings, tables and folders; and trainings on them that cannot learn, which are refused."""

import gzip
import json
import pkgutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midmask
from midmask import Corpus, UserError
from midmask.core.config import override
from midmask.objectives import PRETRAINING
from midmask.recipes import RECIPES
from midmask.store.place import Place
from tests.support.api import toy
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
    assert [(row["_id"], row["text"]) for row in rows(found["corpus.jsonl.gz"])] == [*zip("012", TEXTS, strict=True)]
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
    [({"texts": []}, "texts: an empty list"), ({"texts": "one string"}, "texts: one string; give a list"),
     ({"texts": TEXTS, "ids": ["a", "b", "a"]}, "the id 'a' stands twice"),
     ({"texts": TEXTS, "ids": ["a", "b"]}, "ids: 2 for 3 texts"),
     ({"texts": ["a", None]}, "texts, id '1': None is no string"),
     ({"texts": TEXTS, "queries": ["pet"]}, "queries without relevant"),
     ({"texts": TEXTS, "queries": ["pet"], "relevant": [0, 1]}, "relevant: 2 for 1 queries"),
     ({"texts": TEXTS, "queries": ["pet"], "relevant": [3]}, "there is no text with the id '3'"),
     ({"texts": TEXTS, "queries": ["pet"], "relevant": [[]]}, "no query has a relevant text"),
     ({"texts": TEXTS, "queries": TEXTS[:2], "relevant": [0, 1], "splits": {"train": [0]}}, "'1' is in 0 of"),
     ({"texts": TEXTS, "name": "a/b"}, "name = 'a/b'")],
)  # fmt: skip
def test_mistakes_are_one_line_that_says_what_to_do(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Corpus.from_texts(**arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_a_folders_format_is_recognised(tmp_path: Path) -> None:
    layouts.write_msmarco(tmp_path / "marco")
    stored = Corpus.from_texts(TEXTS, queries=TEXTS, relevant=[0, 1, 2]).in_store(Place(str(tmp_path / "store")))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "part.jsonl").write_text('{"text": "a cat"}\n')
    assert repr(Corpus.from_folder(tmp_path / "marco")) == f"Corpus(msmarco:{tmp_path}/marco)"
    assert repr(Corpus.from_folder(stored.place)) == f"Corpus({stored.name})"
    assert repr(Corpus.from_folder(tmp_path / "plain")) == f"Corpus(texts:{tmp_path}/plain)"
    assert repr(Corpus.from_beir(stored.place)) == f"Corpus(beir:{stored.place})"
    assert Corpus.from_folder("pydocs").name == "pydocs"


def test_importing_midmask_imports_nothing_heavy() -> None:
    heavy = {"torch", "ray", "mlflow", "transformers", "pyarrow", "numpy", "pydantic", "faiss"}
    program = f"import sys, midmask; dir(midmask); print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_public_name_is_there_and_listed() -> None:
    """A module of such a name would take the place of the function when `midmask.NAME` is imported."""
    assert set(midmask.__all__) <= set(dir(midmask))
    assert not {module.name for module in pkgutil.iter_modules(midmask.__path__)} & set(midmask.__all__)
    for name in midmask.__all__:
        assert getattr(midmask, name).__doc__, f"{name} has no docstring"


DOCUMENTS, QUERIES = toy.texts()[:40], toy.queries()[:40]
SPLITS = {"train": range(30), "dev": range(30, 40)}


def corpus(texts: Sequence[str] = DOCUMENTS, queries: Sequence[str] = QUERIES, relevant: Sequence[int] = range(40)):  # type: ignore[no-untyped-def]
    return midmask.Corpus.from_texts(texts, queries=queries, relevant=relevant, splits=SPLITS)


def train(recipe: str, given: midmask.Corpus, settings: Mapping[str, object], store: Path) -> midmask.Run:
    return midmask.train(recipe, given, settings={**toy.SETTINGS, **settings}, storage=store, progress=False)


WEIGHTLESS: dict[str, object] = {"objective.encoder_weight": 0, "objective.decoder_weight": 0}
REFUSED: dict[str, tuple[str, midmask.Corpus, dict[str, object], str]] = {
    "one query a step": ("none", corpus(), {"stages.0.train.batch_size": 1}, "stages.0.train.batch_size = 1 .*=2"),
    "one relevant passage": ("mlm", corpus(relevant=[0] * 40), {}, "stages.0.train: no text can be told .*bm25"),
    "equal passages": ("none", corpus([DOCUMENTS[0]] * 40), {}, "stages.0.train: .*are equal"),
    "equal queries": ("none", corpus(queries=[QUERIES[0]] * 40), {}, "stages.0.train: .*are equal"),
    "equal texts": ("simcse", midmask.Corpus.from_texts([DOCUMENTS[0]] * 40), {}, "pretrain: .*are equal"),
    "no rate": ("none", corpus(), {"stages.0.train.learning_rate": 0}, "stages.0.train.learning_rate = 0: .*above 0"),
    "no step": ("mlm", corpus(), {"pretrain.steps": 0}, "pretrain.steps = 0: .*above 0"),
    "no term": ("retromae", corpus(), WEIGHTLESS, "objective.encoder_weight = .* = 0: .*objective.encoder_weight=1"),
    "no target": ("mlm", corpus(), {"objective.encoder_mask_ratio": 1e-9}, "pretrain: .*objective.encoder_mask_ratio="),
    "too few queries": ("mlm", corpus(), {"stages.0.train.batch_size": 31}, "only 30 .*stages.0.train.batch_size=30"),
    "too few texts": ("mlm", corpus(), {"pretrain.batch_size": 41}, "only 40 .*set pretrain.batch_size=40"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_before_anything_is_trained(case: str, tmp_path: Path) -> None:
    recipe, given, settings, message = REFUSED[case]
    with pytest.raises(UserError, match=message) as refused:
        train(recipe, given, settings, tmp_path)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("pretrain/*/artifact.json")) and not list(tmp_path.glob("finetune/*/artifact.json"))


def test_a_batch_of_one_is_no_remedy(tmp_path: Path) -> None:
    splits = {"train": [0], "dev": [1, 2]}
    one = midmask.Corpus.from_texts(DOCUMENTS, queries=QUERIES[:3], relevant=range(3), splits=splits)
    with pytest.raises(UserError, match="only 1 train quer") as refused:
        train("none", one, {}, tmp_path)
    assert "batch_size=1" not in str(refused.value)


def taught(file: Path, own: float, loss: str = "kl") -> dict[str, object]:
    """Settings with a teacher that gives a query's own document `own`, and each other one 1."""
    scores = [[own if query == document else 1.0 for document in range(40)] for query in range(40)]
    lines = [f"{query}\t{document}\t{scores[query][document]}" for query in range(40) for document in range(40)]
    file.write_text("\n".join(lines))
    negatives = {"stages.0.negatives": ["bm25"], "stages.0.per_query": 1, "stages.0.mine.depth": 20}
    given = {"stages.0.loss": {"name": "distillation", "loss": loss}, "stages.0.teacher": {"scores": str(file)}}
    return {**negatives, **given}


@pytest.mark.parametrize("loss", ["kl", "margin_mse"])
def test_a_teacher_without_an_order_is_refused(loss: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"stages.0.train: .* their teacher's scores are"):
        train("none", corpus(), taught(tmp_path / "scores.tsv", 1.0, loss), tmp_path / "store")


def test_a_refused_training_is_refused_again(tmp_path: Path) -> None:
    """Its first steps leave no checkpoint from which the same command would go on."""
    settings = {"objective.encoder_mask_ratio": 1e-9, "pretrain.checkpoint_every": 2}
    for _ in range(2):
        with pytest.raises(UserError, match="none of the first 6 steps had a gradient"):
            train("mlm", corpus(), settings, tmp_path)


def test_a_training_that_learns_is_not_refused(tmp_path: Path) -> None:
    """One query a step with mined negatives; a teacher with an order; a rate that begins near 0; a cached gradient; a
    single relevant passage with negatives.
    """
    mined = {"stages.0.negatives": ["bm25"], "stages.0.per_query": 2, "stages.0.train.batch_size": 1}
    cached = {"stages.0.train.micro_batch": 1, "stages.0.train.warmup": 1.0, "stages.0.train.decay": 0.0}
    with_order = taught(tmp_path / "scores.tsv", 3.0)
    one = corpus(relevant=[0] * 40)
    for given, settings in ((corpus(), mined), (corpus(), with_order), (corpus(), cached), (one, mined)):
        losses = train("none", given, settings, tmp_path / "store").losses["finetune.0"]
        assert len(losses) == 6 and any(losses)


@pytest.mark.parametrize("name", sorted(PRETRAINING))
def test_a_method_that_tells_texts_apart_needs_two(name: str) -> None:
    recipes = [RECIPES[recipe]() for recipe in RECIPES]
    recipe = next(recipe for recipe in recipes if getattr(recipe.objective, "name", "") == name)
    alone = override(recipe, {"pretrain.batch_size": 1, "backbone.dropout": 0.1})
    if name in ("cocondenser", "diffcse", "ict", "simcse", "spider", "weak_pairs"):
        with pytest.raises(UserError, match=rf"pretrain.batch_size = 1 with objective.name = {name}: .*batch_size=2"):
            alone.check()
    else:
        alone.check()
