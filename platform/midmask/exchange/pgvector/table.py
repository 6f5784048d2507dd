"""A table of passages in a PostgreSQL server: doc_id (primary key), title, text, and `dense vector(D)`, `lexical
sparsevec(V)`, or both.

The table's comment has the fingerprint of the vectors, so a second upload of the same ones goes on, and others are
refused.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from midmask.errors import UserError, quoted
from midmask.exchange.pgvector.rows import MOST_DENSE, encode_rows
from midmask.retrieve.views import Views

NAME = re.compile(r"([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}")
"""A table, or SCHEMA.TABLE: PostgreSQL cuts longer names in silence, and capitals would need quotes in every query."""

TEXTS = {"doc_id": "text", "title": "text", "text": "text"}

MARK = "midmask "
"""Begins the comment of a table that midmask made; the fingerprint of its vectors follows."""

RankedIds = list[tuple[str, float]]
"""Document ids and scores of one query, the best first."""


def column_types(views: Views) -> dict[str, str]:
    """Column -> its type in pgvector, for the vectors of some passages.

    Raises:
        UserError: if they have more dimensions than pgvector stores.
    """
    types = {}
    if views.dense_ND is not None:
        width = views.dense_ND.shape[1]
        if width > MOST_DENSE:
            raise UserError(f"the vectors have {width:,} dimensions; pgvector stores at most {MOST_DENSE:,}")
        types["dense"] = f"vector({width})"
    if views.lexical is not None:
        types["lexical"] = f"sparsevec({views.lexical.width})"
    return types


class VectorTable:
    """The table of one collection's vectors, made if it is missing.

    Args:
        link: psycopg's connection. name: TABLE or SCHEMA.TABLE. types: as `column_types` gives them.
        fingerprint: of the passages' vectors.

    Raises:
        UserError: for an impossible name, and for a table of other columns or of other vectors.
    """

    def __init__(self, link: Any, name: str, types: Mapping[str, str], fingerprint: str) -> None:
        from psycopg import sql

        if not NAME.fullmatch(name):
            raise UserError(
                f"--table {quoted(name)}: a table's name has small letters, digits and underscores, at most 63, such "
                "as passages or search.passages"
            )
        self.name = name
        self._link = link
        self._types = dict(types)
        self._quoted: str = sql.Identifier(*name.split(".")).as_string(link)
        self._make()
        self._check(fingerprint)

    def _make(self) -> None:
        columns = {**TEXTS, **self._types}
        body = ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns.items())
        self._run(f"CREATE TABLE IF NOT EXISTS {self._quoted} ({body}, PRIMARY KEY (doc_id))")

    def _check(self, fingerprint: str) -> None:
        wanted = {**TEXTS, **self._types}
        found = dict(
            self._run(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                [self._quoted],
            )
        )
        remedy = f"name another table with --table, or delete this one (in psql: DROP TABLE {self.name})"
        for name, kind in wanted.items():
            if found.get(name) != kind:
                raise UserError(
                    f"table {self.name}: its column {name} is {found.get(name, 'missing')}, that of this model's "
                    f"passages is {kind}; {remedy}"
                )
        held = self._run("SELECT obj_description(to_regclass(%s), 'pg_class')", [self._quoted])[0][0]
        if held is None and self.count() == 0:
            self._run(f"COMMENT ON TABLE {self._quoted} IS %s", [MARK + fingerprint])
        elif held != MARK + fingerprint:
            raise UserError(f"table {self.name}: it holds the vectors of another model or collection; {remedy}")

    def write(self, passages: pa.Table, views: Views) -> int:
        """Writes a block of passages in one transaction unless all are there; returns how many were written. Another
        process that writes the same block waits, and then has nothing to do.
        """
        ids = passages["doc_id"].to_pylist()
        columns = ", ".join([*TEXTS, *self._types])
        with self._link.transaction(), self._link.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {self._quoted} IN SHARE ROW EXCLUSIVE MODE")
            if self._run(f"SELECT count(*) FROM {self._quoted} WHERE doc_id = ANY(%s)", [ids])[0][0] == len(ids):
                return 0
            cursor.execute(f"DELETE FROM {self._quoted} WHERE doc_id = ANY(%s)", [ids])
            with cursor.copy(f"COPY {self._quoted} ({columns}) FROM STDIN WITH (FORMAT binary)") as copy:
                copy.write(encode_rows(passages, views))
        return len(ids)

    def count(self) -> int:
        """Rows of the table."""
        return int(self._run(f"SELECT count(*) FROM {self._quoted}")[0][0])

    def search(self, queries: Views, k: int) -> list[RankedIds]:
        """The best `k` passages of each query by inner product, of both views their sum; ties rank by document id. All
        rows are scored, whatever indexes the table has: no index serves this order.
        """
        score = " + ".join(f"-({name} <#> %s::{kind})" for name, kind in self._types.items())
        best = f'SELECT doc_id, {score} AS score FROM {self._quoted} ORDER BY score DESC, doc_id COLLATE "C" LIMIT %s'
        return [self._run(best, [*vectors, k]) for vectors in _literals(queries)]

    def _run(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows of a statement; none for one without rows."""
        cursor = self._link.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []


def _literals(views: Views) -> list[list[str]]:
    """The vectors of each text as pgvector reads them, dense before lexical; indices of a sparsevec begin with 1."""
    columns: list[list[str]] = []
    if views.dense_ND is not None:
        columns.append([f"[{','.join(map(repr, vector))}]" for vector in np.asarray(views.dense_ND).tolist()])
    if (rows := views.lexical) is not None:
        pairs = [zip(*(part.tolist() for part in rows.row(row)), strict=True) for row in range(len(rows))]
        entries = [",".join(f"{term + 1}:{weight!r}" for term, weight in own) for own in pairs]
        columns.append([f"{{{each}}}/{rows.width}" for each in entries])
    return [list(row) for row in zip(*columns, strict=True)]
