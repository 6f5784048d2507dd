"""Columns of tables: one a corpus, or one a slice of the queries; and their average."""

from collections.abc import Collection, Mapping

from midmask.evaluation.tables import PerQuery, TableColumn


def by_corpus(corpora: Mapping[str, PerQuery], measure: str) -> list[TableColumn]:
    return [TableColumn(name, measure, per_query) for name, per_query in corpora.items()]


def by_slice(per_query: PerQuery, measure: str, slices: Mapping[str, Collection[str]]) -> list[TableColumn]:
    return [TableColumn(name, measure, per_query, queries) for name, queries in slices.items()]


def average_columns(means: Mapping[str, float]) -> float:
    """The mean of the columns' means, however many queries each has."""
    return sum(means.values()) / len(means)
