"""What a source of queries is, which sources train and which judge, and the candidates that they make.

A system that is trained and judged by queries of one kind has learned the kind: it gains what people's queries do not
show (docs/results/choose.md). So the sources that judge are not those that train (`roles_of`). Titles judge where
passages have their own, for they are most like what people type; else sentences do.

A source reads the first passages by a hash of their ids, of the documents of the splits that its queries are for. What
a model has written is kept, so that a step that was killed asks for it once.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, cast

from midmask.core.config import library_versions
from midmask.core.randomness import hash64
from midmask.queries.collection import CollectionFacts, MadeQuery, Passage, draw_passages, read_drawn
from midmask.queries.config import ALL, QUERY_SOURCES, SPLITS, TRAIN, QueriesConfig, kind_and_place
from midmask.store.place import Place

SAMPLE = 500
"""Passages in the sample from which the number of a source's queries is estimated."""


@dataclass(frozen=True)
class Opening:
    """What a source may use besides the passages that it makes queries of."""

    config: QueriesConfig
    known: CollectionFacts
    cache: Place | None = None  # where answers are kept until the step has ended; none: in memory


class Source:
    """Makes queries of one kind; the same passages give the same queries, however they are divided into calls.

    A source overrides `queries_of`, or `queries` if it works on several passages at once. Where its place is not what
    it should be, its constructor raises UserError.
    """

    READS_ALL: ClassVar[bool] = False  # whether it goes through all passages: most give no query, and it costs nothing
    JUDGES: ClassVar[int] = 0  # its place among the sources that may judge, 1 before others; 0: it favours BM25

    def __init__(self, place: str, opening: Opening) -> None:
        """place: what follows the kind in the source's name; empty where it has none."""
        self.config, self.known = opening.config, opening.known

    @classmethod
    def content(cls, place: str, named: str) -> Any:
        """What decides its queries besides the config, for the artifact's identity; none: nothing does.

        Args:
            named: the field and the source, for the text of the UserError if the place holds nothing.
        """
        return None

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        """Makes any number of queries for each passage, in the order of the passages."""
        for passage in passages:
            yield from self.queries_of(passage)

    def queries_of(self, passage: Passage) -> Iterator[MadeQuery]:
        """Makes the queries of a passage."""
        raise NotImplementedError

    def draw(self, *names: str | int) -> int:
        """64 random bits for these names (a purpose, a passage's id, a position, …) and the config's seed."""
        return draw(self.config.seed, *names)


def draw(seed: int, *names: str | int) -> int:
    """64 random bits for these names."""
    return int(hash64(["\0".join(map(str, names))], f"queries {seed}")[0])


@cache
def class_of(source: str) -> type[Source]:
    """The class of a source, by its name in `QueriesConfig.sources`."""
    homes = {kind_and_place(name)[0]: home for name, home in QUERY_SOURCES.items()}
    module, name = homes[kind_and_place(source)[0]]
    return cast("type[Source]", getattr(import_module(f"{__package__}.{module}"), name))


def open_source(source: str, opening: Opening) -> Source:
    """Opens a source by its name in `QueriesConfig.sources`.

    Raises:
        UserError: if its file, model or server is not what it should be.
    """
    return class_of(source)(kind_and_place(source)[1], opening)


def queries_content(config: QueriesConfig) -> dict[str, Any]:
    """Fingerprints of the sources' files and models, and versions of the libraries that determine the queries.

    They are a part of the artifact's identity. A server is identified by its URL alone.

    Raises:
        UserError: if a file or a model is not there.
    """
    content: dict[str, Any] = {"libraries": library_versions(("bm25s", "PyStemmer"))}
    for source in config.sources:
        deciding = class_of(source).content(kind_and_place(source)[1], f"queries.sources, {source}")
        if deciding is not None:
            content[source] = deciding
    return content


ENOUGH = 200
"""Fewest queries for dev and test, before any is dropped, that let a source judge alone."""


@dataclass(frozen=True)
class Roles:
    """The sources that make queries to train, and those that make queries to judge; a source may do both."""

    train: Mapping[str, float]  # source -> weight
    judge: Mapping[str, float]  # source -> weight

    def of(self, split: str) -> Mapping[str, float]:
        return self.train if split == TRAIN else self.judge

    def splits(self, source: str) -> tuple[str, ...]:
        """The splits that a source makes queries for."""
        return tuple(split for split in SPLITS if source in self.of(split))

    def share(self, source: str, split: str) -> float:
        """The source's share of a split's queries, by weight; 0 if it makes none for it."""
        weights = self.of(split)
        return weights.get(source, 0.0) / sum(weights.values())


def roles_of(opening: Opening) -> Roles:
    """Divides the sources into those that train and those that judge, by `config.judged_by`.

    If that is empty, the first source that may judge and has enough queries judges alone; if none has enough, all
    judge. The sources that judge train as well if no other is left.
    """
    config = opening.config
    judging = tuple(config.sources) if ALL in config.judged_by else config.judged_by
    judging = judging or _first_judge(opening)
    others = {source: weight for source, weight in config.sources.items() if source not in judging}
    if not judging or not others:
        return Roles(config.sources, {source: config.sources[source] for source in judging or config.sources})
    return Roles(others, {source: config.sources[source] for source in judging})


def _first_judge(opening: Opening) -> tuple[str, ...]:
    may_judge = [source for source in opening.config.sources if class_of(source).JUDGES]
    for source in sorted(may_judge, key=lambda source: class_of(source).JUDGES):
        if _possible(source, opening) >= ENOUGH:
            return (source,)
    return ()


def _possible(source: str, opening: Opening) -> float:
    """Estimates from a sample how many queries a source can make for dev and test.

    A model, which is not asked for a sample, counts one query per passage.
    """
    config, known = opening.config, opening.known
    judged = (config.dev_share + config.test_share) * len(known.doc_ids)
    kind = kind_and_place(source)[0]
    if kind == "model":
        return judged
    drawn = draw_passages(known.doc_ids, config.seed, f"{kind} sample", SAMPLE)
    read = [passage for some in read_drawn(known.corpus, drawn) for passage in some]
    makers = {made.doc_id for made in open_source(source, opening).queries(read)}
    return judged * len(makers) / len(read)


WRITTEN = "written"
"""Folder for the answers of models while the step runs."""

OTHER_PURPOSE = "its document is for queries of other sources"


@dataclass
class Candidate:
    """A query that was made, and whether and why it was dropped."""

    made: MadeQuery
    passage: Passage
    source: str
    query_id: str
    split: str  # of its document; "" if its passage has too many copies to be in a split
    draw_key: float  # sort key of a weighted random draw (exponential race); the smallest is drawn first
    reason: str = ""  # why it was dropped; "" if it was not
    rank: int | None = None  # of the first relevant passage by BM25; None if it was not found or not searched
    by_encoder: bool = False  # whether the encoder finds a relevant passage that BM25 does not

    @property
    def is_in(self) -> bool:
        return not self.reason


def collect(opening: Opening, roles: Roles, splits: Mapping[str, str], out: Place) -> list[Candidate]:
    """Makes the queries of all sources, sorted by query_id.

    Args:
        splits: doc_id -> split.
    """
    config, known = opening.config, opening.known
    candidates: dict[str, Candidate] = {}
    for number, (source, weight) in enumerate(config.sources.items()):
        count = sum(config.most_queries(split) * roles.share(source, split) for split in SPLITS)
        limit = math.ceil(config.candidates * count)
        opened = open_source(source, replace(opening, cache=out / WRITTEN / f"{number:02d}"))
        purpose, kind = roles.splits(source), kind_and_place(source)[0]
        drawn: set[str] | None = None  # all
        if not opened.READS_ALL:
            # Passages in no split are read too: their queries are made to be counted with the reason.
            doc_ids = [doc_id for doc_id in known.doc_ids if splits.get(doc_id) in (None, *purpose)]
            drawn = draw_passages(doc_ids, config.seed, kind, limit)
        for block in read_drawn(known.corpus, drawn):
            by_id = {passage.doc_id: passage for passage in block}
            seen: Counter[MadeQuery] = Counter()
            for made in opened.queries(block):
                split = splits.get(made.doc_id, "")
                name = (kind, seen[made], made.doc_id, str(made.hidden), made.text)
                seen[made] += 1
                # The first of exponential waiting times: a source of twice the weight comes first twice as often.
                draw_key = -math.log((draw(config.seed, *name) + 0.5) / 2.0**64) / weight
                query_id = f"{kind}-{draw(0, source, *name):016x}"
                reason = OTHER_PURPOSE if split and split not in purpose else ""
                candidates[query_id] = Candidate(made, by_id[made.doc_id], source, query_id, split, draw_key, reason)
    return sorted(candidates.values(), key=lambda candidate: candidate.query_id)
