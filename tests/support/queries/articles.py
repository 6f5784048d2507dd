"""A made-up collection of articles, prepared as a corpus, and BM25 written out in float64."""

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import Stemmer

from midmask.queries.collection import CollectionFacts, Passage
from midmask.queries.config import QueriesConfig
from midmask.queries.sources import Opening
from midmask.store.artifact import Artifact
from midmask.store.place import Place

SYLLABLES = [first + vowel for first in "bdfgklmnprst" for vowel in ("a", "e", "i", "o", "u")]
STOP = ("the", "of", "and", "in", "to")


def word(number: int) -> str:
    """Three syllables, another word for every number."""
    count = len(SYLLABLES)
    return SYLLABLES[number % count] + SYLLABLES[number // count % count] + SYLLABLES[number * 7 % count]


def article(number: int, passages: int) -> list[Passage]:
    """Passages of 5 sentences that share a topic's words; each has a title of its own below the article's."""
    random_ = random.Random(number)
    topic = [word(number * 40 + at) for at in range(40)]
    found = []
    for part in range(passages):
        own = [word(5_000 + number * 300 + part * 12 + at) for at in range(12)]
        sentences = []
        for _ in range(5):
            words = [random_.choice(random_.choice((own, topic, topic, STOP))) for _ in range(random_.randint(7, 16))]
            sentences.append(" ".join(words).capitalize() + ".")
        title = f"{topic[0]} \u203a {own[0]} {own[1]} {topic[1]}"
        found.append(Passage(f"{topic[0]}{number}.md#{part}", title, " ".join(sentences)))
    return found


def articles(count: int = 24, passages: int = 5) -> list[Passage]:
    return [one for number in range(count) for one in article(number, passages)]


def corpus_of(folder: Path, passages: Sequence[Passage], *, shard: int = 50, name: str = "articles") -> Artifact:
    """A prepared corpus of these passages, `shard` of them in a file."""
    (folder / "docs").mkdir(parents=True)
    for at in range(0, len(passages), shard):
        rows = [one._asdict() for one in passages[at : at + shard]]
        schema = pa.schema([(column, pa.string()) for column in ("doc_id", "title", "text")])
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / "docs" / f"{at // shard:05d}.parquet")
    Place(str(folder / "statistics.json")).write_json({"name": name})
    return Artifact(Place(str(folder)), {"fingerprint": "c", "config": {}, "result": {}})


def opening(config: QueriesConfig, corpus: Artifact | None = None, **fields: Any) -> Opening:
    """What a source may use; without a corpus for those that read none."""
    known = cast(CollectionFacts, CollectionFacts(corpus.place) if corpus else None)
    return Opening(config, known, **fields)


class HandBm25:
    """BM25 as Lucene has it, in float64, over (doc_id, text) rows."""

    def __init__(self, rows: Mapping[str, str], k1: float = 0.9, b: float = 0.4) -> None:
        self.terms = {doc_id: Counter(stems(text)) for doc_id, text in rows.items()}
        self._mean = sum(sum(own.values()) for own in self.terms.values()) / len(rows)
        self._have = Counter(stem for own in self.terms.values() for stem in own)
        self._k1, self._b = k1, b

    def idf(self, stem: str) -> float:
        return math.log(1 + (len(self.terms) - self._have[stem] + 0.5) / (self._have[stem] + 0.5))

    def scores(self, query: str) -> dict[str, float]:
        found = {}
        for doc_id, own in self.terms.items():
            norm = self._k1 * (1 - self._b + self._b * sum(own.values()) / self._mean)
            found[doc_id] = sum(self.idf(s) * own[s] / (own[s] + norm) for s in stems(query) if s in own)
        return found

    def ranks(self, query: str, relevant: Sequence[str], error: float = 1e-5) -> tuple[int, int] | None:
        """The best and the worst rank that the first of these documents can have if scores are wrong by `error`; None
        if none shares a word with the query.
        """
        found = self.scores(query)
        own = max(found[doc_id] for doc_id in relevant)
        if own == 0:
            return None
        others = [score for doc_id, score in found.items() if doc_id not in relevant]
        return 1 + sum(s > own + error for s in others), 1 + sum(s > own - error for s in others)


def stems(text: str) -> list[str]:
    return list(Stemmer.Stemmer("english").stemWords(re.findall(r"\b\w\w+\b", text.lower())))
