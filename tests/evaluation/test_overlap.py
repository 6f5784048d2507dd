"""What a training has read of what is evaluated: planted copies, and the counts against sets of words."""

import random
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.corpora.assemble import JoinConfig
from midmask.corpora.config import CorpusConfig
from midmask.corpora.writer import write_beir
from midmask.evaluation.overlap import OverlapConfig, count_read
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.experiment.training_steps import Survey
from midmask.store.place import Place

TEXTS = st.lists(st.lists(st.sampled_from("ab"), max_size=14).map(" ".join), min_size=1, max_size=6)


def was_read(text: str, read: list[str]) -> bool:
    """More than half of the runs of eight words, in fractions; a shorter text is one run."""

    def runs(words: list[str]) -> list[tuple[str, ...]]:
        return [tuple(words[at : at + 8]) for at in range(max(1, len(words) - 7))]

    there = {run for other in read for run in runs(other.split())}
    own = runs(text.split())
    return Fraction(sum(run in there for run in own), len(own)) > Fraction(1, 2)


@settings(max_examples=200, deadline=None)
@given(groups=st.lists(TEXTS, min_size=1, max_size=3), read=st.lists(TEXTS, max_size=3))
def test_the_counts_are_those_of_sets_of_words(groups: list[list[str]], read: list[list[str]]) -> None:
    together = [text for texts in read for text in texts]
    expected = [[sum(was_read(text, together) for text in texts), len(texts)] for texts in groups]
    assert count_read(groups, read) == expected


def test_case_and_punctuation_do_not_matter() -> None:
    assert count_read([["Who won, in 1905?"]], [["who won in 1905"]]) == [[1, 1]]


def text(seed: int, words: int = 60) -> str:
    return " ".join(random.Random(seed).choices([f"w{number}" for number in range(2000)], k=words))


def edited(passage: str) -> str:
    """Three words of sixty replaced."""
    words = passage.split()
    words[10], words[25], words[45] = "three", "other", "words"
    return " ".join(words)


def collection(folder: Path, seed: int, others: list[str] = ()) -> Step:  # type: ignore[assignment]
    """Nine passages and their queries of nine words, three each in train, dev and test; and further passages."""
    passages = [(f"d{number}", "", text(seed + number)) for number in range(9)]
    passages += [(f"x{number}", "", other) for number, other in enumerate(others)]
    queries = [{"_id": f"q{number}", "text": text(seed + 50 + number, 9)} for number in range(9)]
    splits = ("train", "dev", "test")
    qrels = {split: [(f"q{n}", f"d{n}", 1) for n in range(at, 9, 3)] for at, split in enumerate(splits)}
    write_beir(Place(str(folder)), passages, queries, qrels)
    return Survey().collection(CorpusConfig(name=f"beir:{folder}"))


@pytest.fixture
def target(tmp_path: Path) -> Step:
    return collection(tmp_path / "target", 100)


def overlaps(storage: Path, stage: str, read: Step, *evaluated: Step, split: str = "test") -> list[dict[str, object]]:
    names = tuple((step.config.short_name, split) for step in evaluated)  # type: ignore[attr-defined]
    inputs = {f"evaluated{number}": step for number, step in enumerate(evaluated)}
    step = Step("overlap", OverlapConfig(stage=stage, evaluated=names), {"corpus": read, **inputs})
    rows: list[dict[str, object]] = Runner(Place(str(storage)), LOCAL).compute(step).result["overlaps"]
    return rows


def test_copies_of_test_passages_in_a_corpus_for_middle_training_are_found(target: Step, tmp_path: Path) -> None:
    """One copied as it is, one lightly edited, one in the midst of a longer text; and a query in a text of its own."""
    exact, light, inside = text(102), edited(text(105)), f"{text(1)} {text(108)} {text(2)}"
    planted = collection(tmp_path / "planted", 300, [exact, light, inside, text(155, 9)])
    other = collection(tmp_path / "other", 500)
    found, untouched = overlaps(tmp_path, "middle training", planted, target, other)
    counts = {"queries": [1, 3], "relevant": [3, 3], "passages": [3, 9]}
    about = {"stage": "middle training", "read": "planted", "split": "test", "transductive": False}
    assert found == {**about, "corpus": "target", **counts}
    assert untouched == {**about, "corpus": "other", "queries": [0, 3], "relevant": [0, 3], "passages": [0, 9]}
    (dev,) = overlaps(tmp_path, "middle training", planted, target, split="dev")
    assert (dev["queries"], dev["relevant"], dev["passages"]) == ([0, 3], [0, 3], [3, 9]), "copies are of test"


def test_a_fine_tuning_reads_train_queries_and_their_passages(target: Step, tmp_path: Path) -> None:
    """Its corpus has a copy of a test query only in a passage, which is no query that was trained on."""
    (itself,) = overlaps(tmp_path, "fine-tuning", target, target)
    assert itself == {
        **{"stage": "fine-tuning", "read": "target", "corpus": "target", "split": "test", "transductive": True},
        **{"queries": [0, 3], "relevant": [0, 3], "passages": [3, 9]},
    }
    (train,) = overlaps(tmp_path, "fine-tuning", target, target, split="train")
    assert train["queries"] == [3, 3] and train["relevant"] == [3, 3]
    quoting = collection(tmp_path / "quoting", 300, [text(155, 9)])
    (quoted,) = overlaps(tmp_path, "fine-tuning", quoting, target)
    assert quoted["queries"] == [0, 3]


def test_what_is_searched_is_known_among_collections_that_are_read_together(target: Step, tmp_path: Path) -> None:
    wiki = collection(tmp_path / "wiki", 700)
    both = Step("join", JoinConfig(names=("target", "wiki")), {"corpus0": target, "corpus1": wiki})
    searched, elsewhere = overlaps(tmp_path, "middle training", both, target, wiki)
    assert searched["read"] == "target+wiki"
    assert [row["transductive"] for row in (searched, elsewhere)] == [True, False], "wiki is another test collection"
    assert searched["relevant"] == elsewhere["relevant"] == [3, 3]


def test_a_sample_stands_for_a_large_collection(target: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midmask.evaluation.overlap.SAMPLE", 4)
    (row,) = overlaps(tmp_path, "middle training", target, target)
    read, drawn = row["passages"]  # type: ignore[misc]
    assert 0 < read == drawn < 9 and row["relevant"] == [3, 3]
