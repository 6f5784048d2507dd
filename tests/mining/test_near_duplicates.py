"""Passages like a relevant one, held against the Jaccard similarity of their shingles, counted."""

import random

import numpy as np
import pyarrow as pa
import pytest

from midmask.artifact import Artifact, Place
from midmask.corpora.docstrings import plain_words
from midmask.corpora.duplicates import SHINGLE, signatures
from midmask.mining.known import KnownRelevant
from midmask.mining.near_duplicates import NEAR_DUPLICATES, Groups, NearDuplicatesConfig
from tests.support.retrieve.collection import write_parts

WORDS = [f"w{number}" for number in range(3000)]


def jaccard(one: str, other: str) -> float:
    texts = [plain_words(text) for text in (one, other)]
    left, right = ({tuple(text[at : at + SHINGLE]) for at in range(max(1, len(text) - SHINGLE + 1))} for text in texts)
    return len(left & right) / len(left | right)


def varied(text: str, changes: int, draw: random.Random) -> str:
    words = text.split()
    for place in draw.sample(range(len(words)), changes):
        words[place] = draw.choice(WORDS)
    return " ".join(words)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> tuple[Artifact, dict[str, str]]:
    """40 texts of 80 words, each with five variants; text 0 of each is relevant to a query, in some split."""
    draw = random.Random(5)
    docs = {}
    for number in range(40):
        text = " ".join(draw.choices(WORDS, k=80))
        docs[f"d{number}_0"] = text
        docs |= {f"d{number}_{changes}": varied(text, changes, draw) for changes in (1, 2, 4, 8)}
        docs[f"d{number}_x"] = f"  {text.upper()}.\n"
    ids = draw.sample(sorted(docs), len(docs))
    place = Place(str(tmp_path_factory.mktemp("corpus")))
    judged = [("train" if number % 2 else "test", f"q{number}", f"d{number}_0", 1 + number % 2) for number in range(40)]
    artifact = write_parts(
        place,
        docs=[(doc_id, "", docs[doc_id]) for doc_id in ids],
        queries=[(f"q{number}", "x") for number in range(41)],
        qrels=[*judged, ("train", "q0", "d39_0", 0), ("dev", "q40", "d1_0", 1), ("dev", "q40", "d2_0", 1)],
    )
    return artifact, docs


def test_what_is_clearly_alike_is_found_for_judgements_of_all_splits_but_of_grade_0(corpus, tmp_path):
    """The estimate of 96 hashes deviates by 0.05: four times that on either side leaves no doubt."""
    artifact, docs = corpus
    out = Place(str(tmp_path))
    assert NEAR_DUPLICATES(NearDuplicatesConfig(), {"corpus": artifact}, out)["positives"] == 40
    known = KnownRelevant.of(artifact, out, 0.8)
    query, doc_ids = known.like(known.positives(pa.array([f"q{number}" for number in range(40)])))
    found = set(zip(query.tolist(), doc_ids.to_pylist(), strict=True))
    alike = 0
    for number in range(40):
        for doc_id, text in docs.items():
            similarity = jaccard(docs[f"d{number}_0"], text)
            if similarity > 0.97 or similarity < 0.6:
                assert ((number, doc_id) in found) == (similarity > 0.97), (number, doc_id, similarity)
                alike += similarity > 0.97
    assert alike >= 80, "every text and its copy"
    known = KnownRelevant.of(artifact, out, 1.0)
    own = known.positives(pa.array(["q0", "q1", "q40", "unknown"]))
    assert sorted(zip(own["query"].to_pylist(), own["doc_id"].to_pylist(), strict=True)) == [
        (0, "d0_0"), (1, "d1_0"), (2, "d1_0"), (2, "d2_0"),
    ]  # fmt: skip
    query, doc_ids = known.like(own)
    assert sorted(zip(query.tolist(), doc_ids.to_pylist(), strict=True)) == [
        (0, "d0_0"), (0, "d0_x"), (1, "d1_0"), (1, "d1_x"), (2, "d1_0"), (2, "d1_x"), (2, "d2_0"), (2, "d2_x"),
    ]  # fmt: skip


def test_pairs_are_those_that_agree_in_half_of_all_hashes():
    """Against every pair, compared: all that agree in three quarters are found, and nothing below half."""
    draw = random.Random(0)
    base = [" ".join(draw.choices(WORDS, k=40)) for _ in range(30)]
    others = [varied(draw.choice(base), changes, draw) for changes in (0, 1, 2, 3, 6) for _ in range(40)]
    left, right = signatures(base), signatures(others)
    agreement = (right[:, None, :] == left[None, :, :]).mean(axis=2)
    row, group, similarity = Groups(left).like(right)
    np.testing.assert_allclose(similarity, agreement[row, group], atol=1e-6)
    found = set(zip(row.tolist(), group.tolist(), strict=True))
    assert {tuple(pair) for pair in np.argwhere(agreement >= 0.75).tolist()} <= found
    assert found <= {tuple(pair) for pair in np.argwhere(agreement >= 0.5).tolist()}
