"""Columns of tables: one a corpus, or one a slice of the queries."""

from collections.abc import Collection, Mapping

from midmask.evaluation.tables import Column, PerQuery


def by_corpus(corpora: Mapping[str, PerQuery], measure: str) -> list[Column]:
    return [Column(name, measure, per_query) for name, per_query in corpora.items()]


def by_slice(per_query: PerQuery, measure: str, slices: Mapping[str, Collection[str]]) -> list[Column]:
    return [Column(name, measure, per_query, queries) for name, queries in slices.items()]
