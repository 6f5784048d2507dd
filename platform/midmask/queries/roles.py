"""What the queries of a source are for: to train systems, or to judge them (dev and test).

A system that is trained and judged by queries of one kind has learned the kind: it gains what people's queries do not
show (docs/results/choose.md). So the sources that judge are not those that train. Titles judge where passages have
their own, for they are most like what people type; else sentences do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from midmask.artifact import Place
from midmask.queries.collection import CollectionFacts, draw_passages, read_drawn
from midmask.queries.config import ALL, PLAIN, SPLITS, TRAIN, QueriesConfig, kind_and_place
from midmask.queries.sources import Known, open_plain

JUDGES = ("http", "model", "titles", "sentences")
"""Kinds that may judge, the first that can. A file's queries have weak labels, which BM25 chose; keyphrases and spans
are words of their passage, so that BM25 wins on them whatever people ask.
"""

ENOUGH = 200
"""Queries that a source can make for dev and test, before any is dropped: with fewer it does not judge alone."""

SAMPLE = 500
"""Passages that tell how many queries a source can make."""


@dataclass(frozen=True)
class Roles:
    """train, judge: source -> weight, of the sources whose queries are for it; one source may do both."""

    train: Mapping[str, float]
    judge: Mapping[str, float]

    def of(self, split: str) -> Mapping[str, float]:
        return self.train if split == TRAIN else self.judge

    def splits(self, source: str) -> tuple[str, ...]:
        """The splits that a source makes queries for."""
        return tuple(split for split in SPLITS if source in self.of(split))

    def share(self, source: str, split: str) -> float:
        """The source's share of a split's queries, by weight; 0 if it makes none for it."""
        weights = self.of(split)
        return weights.get(source, 0.0) / sum(weights.values())


def roles_of(config: QueriesConfig, corpus: Place, known: CollectionFacts) -> Roles:
    """By `config.judged_by`; where it is empty, the first of `JUDGES` that has enough judges alone. Where none has, or
    nothing would be left to train on, all sources do both.
    """
    judging = tuple(config.sources) if ALL in config.judged_by else config.judged_by
    judging = judging or _first_judge(config, corpus, known)
    others = {source: weight for source, weight in config.sources.items() if source not in judging}
    if not judging or not others:
        return Roles(config.sources, {source: config.sources[source] for source in judging or config.sources})
    return Roles(others, {source: config.sources[source] for source in judging})


def _first_judge(config: QueriesConfig, corpus: Place, known: CollectionFacts) -> tuple[str, ...]:
    for kind in JUDGES:
        for source in config.sources:
            if kind_and_place(source)[0] == kind and _possible(source, config, corpus, known) >= ENOUGH:
                return (source,)
    return ()


def _possible(source: str, config: QueriesConfig, corpus: Place, known: CollectionFacts) -> float:
    """How many queries the source can make for dev and test, by what it makes of a sample; of a model or a server,
    which are not asked in vain, as many as passages.
    """
    judged = (config.dev_share + config.test_share) * len(known.doc_ids)
    kind = kind_and_place(source)[0]
    if kind not in PLAIN:
        return judged
    drawn = draw_passages(known.doc_ids, config.seed, f"{kind} sample", SAMPLE)
    read = [passage for some in read_drawn(corpus, drawn) for passage in some]
    opened = open_plain(kind, config, Known(known.weights, known.titles))
    makers = {made.doc_id for made in opened.queries(read)}
    return judged * len(makers) / len(read)
