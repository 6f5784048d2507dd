"""A collection's vectors in a PostgreSQL server with the extension pgvector: `midmask upload` and `Run.upload`.

A table has the columns doc_id (primary key), title, text, and `dense vector(D)`, `lexical sparsevec(V)`, or both. Its
comment has the fingerprint of the vectors, so a second upload of the same ones goes on, and others are refused. Each
block of passages is one transaction, and a block that is there is not sent again: a killed upload goes on, and a second
one changes nothing. Afterwards a sample of passages is searched for here and there, to prove that both find the same.

Passages are sent in the binary form of PostgreSQL's COPY, so that every bit of a vector arrives:

    file        the signature, rows, and a final -1 of 16 bits
    row         the number of columns, then for each its bytes' length and its bytes, all big-endian
    vector      int16 dimensions, int16 0, float32 values
    sparsevec   int32 dimensions, int32 entries, int32 0, int32 indices from 0, float32 weights

Sources: the chapter "COPY" of PostgreSQL's manual; `vector_recv` and `sparsevec_recv` of pgvector 0.8.
"""

import contextlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from midmask.core.arrays import Floats, Ints
from midmask.core.redaction import has_credentials, redacted
from midmask.errors import UserError, how_to_install, quoted
from midmask.retrieve.searcher import Searcher
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views, read_views
from midmask.store.tables import read_table

SCHEMES = ("postgresql://", "postgres://")

TIMEOUT = 10
"""Seconds after which an address counts as one that does not answer."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """An open connection, which commits each statement, to a database with the extension pgvector; closed at the end.
    Errors of the server are the user's in here: no answer, no right, no space, a text that its encoding lacks.

    Args:
        address: `postgresql://USER@HOST:PORT/DATABASE`, without a password: libpq reads PGPASSWORD or ~/.pgpass.

    Raises:
        UserError: for an address of another form, one with a password, a missing package, and errors of the server.
    """
    _check_address(address)
    psycopg = _library()
    options = {"connect_timeout": TIMEOUT, "client_encoding": "UTF8", "application_name": "midmask"}
    try:
        link = psycopg.connect(address, autocommit=True, cursor_factory=psycopg.ClientCursor, **options)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise UserError(
            f"--to {address}: cannot connect: {_first_line(error)}. Try the same address with psql, to check host, "
            "port, user and database; a password is read from PGPASSWORD or ~/.pgpass."
        ) from None
    with contextlib.closing(link), _refusing(psycopg, address):
        _have_pgvector(psycopg, link, address)
        yield link


def check_server(address: str) -> None:
    """Connects and does nothing else, so that vectors are not computed for a server that does not answer.

    Raises:
        UserError: as `connected`.
    """
    with connected(address):
        pass


def _check_address(address: str) -> None:
    if not address.startswith(SCHEMES):
        shown = quoted(redacted(address))
        raise UserError(
            f"--to {shown}: type an address that begins with postgresql://, such as postgresql://HOST:5432/DATABASE, "
            "with the user's name and @ before the host"
        )
    if has_credentials(address):
        raise UserError(
            f"--to {redacted(address)}: the address contains a password, which lists of processes show; leave it out "
            "and set PGPASSWORD, or write it to ~/.pgpass"
        )


def _library() -> Any:
    try:
        import psycopg
    except ImportError:
        raise UserError(
            "uploading to PostgreSQL needs the package psycopg, which is not installed; type: "
            f"{how_to_install('pgvector')}"
        ) from None
    return psycopg


@contextlib.contextmanager
def _refusing(psycopg: Any, address: str) -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, psycopg.DataError, psycopg.errors.InsufficientPrivilege) as error:
        raise UserError(
            f"--to {address}: the server refused or went away: {_first_line(error)}. The passages that were written "
            "are kept: mend that, and run the same again."
        ) from None


def _have_pgvector(psycopg: Any, link: Any, address: str) -> None:
    """Creates the extension where the database lacks it."""
    missing = (psycopg.errors.InsufficientPrivilege, psycopg.NotSupportedError, psycopg.errors.UndefinedFile)
    try:
        link.execute("CREATE EXTENSION IF NOT EXISTS vector")
        is_recent = link.execute("SELECT to_regtype('sparsevec') IS NOT NULL").fetchone()[0]
    except missing as error:
        raise UserError(
            f"--to {address}: the database lacks the extension pgvector: {_first_line(error)}. Install pgvector 0.7 or "
            "later on the server, then, as its owner, type in psql: CREATE EXTENSION vector"
        ) from None
    if not is_recent:
        raise UserError(
            f"--to {address}: the database's pgvector has no type sparsevec; install pgvector 0.7 or later, then type "
            "in psql: ALTER EXTENSION vector UPDATE"
        )


def _first_line(error: BaseException) -> str:
    return redacted(next(iter(str(error).strip().splitlines()), type(error).__name__)).rstrip(".")


COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = struct.pack("!h", -1)

MOST_DENSE, MOST_WORDS = 16_000, 16_000
"""Dimensions of a vector and entries of a sparsevec that pgvector stores at most."""

NUL_SHOWN_AS = "\ufffd"
"""Replacement in the table for the character NUL, which PostgreSQL's texts cannot have."""


def encode_rows(passages: pa.Table, views: Views) -> bytes:
    """A file for `COPY … FROM STDIN WITH (FORMAT binary)`: doc_id, title, text and the vectors that there are, dense
    before lexical.

    Raises:
        UserError: naming the passage, if a vector has more words than pgvector stores.
    """
    names = passages["doc_id"].to_pylist()
    texts = [[_text(value or "") for value in passages[name].to_pylist()] for name in ("title", "text")]
    columns = [[name.encode() for name in names], *texts, *_vectors(names, views)]
    rows = (struct.pack("!h", len(columns)) + b"".join(map(_field, row)) for row in zip(*columns, strict=True))
    return b"".join([COPY_HEADER, *rows, COPY_END])


def _field(value: bytes) -> bytes:
    return struct.pack("!i", len(value)) + value


def _text(value: str) -> bytes:
    return value.replace("\0", NUL_SHOWN_AS).encode()


def _vectors(names: list[str], views: Views) -> Iterator[list[bytes]]:
    """The column of each view that there is."""
    if views.dense_ND is not None:
        big_ND = np.asarray(views.dense_ND).astype(">f4")
        head = struct.pack("!hh", big_ND.shape[1], 0)
        yield [head + vector_D.tobytes() for vector_D in big_ND]
    if views.lexical is not None:
        _check_words(names, views.lexical)
        yield [_sparse(views.lexical, row) for row in range(len(views.lexical))]


def _sparse(rows: SparseRows, row: int) -> bytes:
    terms, weights = rows.row(row)
    held = weights != 0  # pgvector refuses an entry of weight zero
    head = struct.pack("!iii", rows.width, int(held.sum()), 0)
    return b"".join([head, terms[held].astype(">i4").tobytes(), weights[held].astype(">f4").tobytes()])


def _check_words(names: list[str], rows: SparseRows) -> None:
    words = np.diff(rows.offsets)
    if int(words.max(initial=0)) > MOST_WORDS:
        row = int(words.argmax())
        raise UserError(
            f"passage {names[row]!r} has {words[row]:,} words with a weight; pgvector stores at most {MOST_WORDS:,}. "
            "Train the model with fewer: representation.passage_terms"
        )


TABLE_NAME = re.compile(r"([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}")
"""A table, or SCHEMA.TABLE: PostgreSQL cuts longer names in silence, and capitals would need quotes in every query."""

TEXTS = {"doc_id": "text", "title": "text", "text": "text"}

COMMENT_MARK = "midmask "
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

        if not TABLE_NAME.fullmatch(name):
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
            self._run(f"COMMENT ON TABLE {self._quoted} IS %s", [COMMENT_MARK + fingerprint])
        elif held != COMMENT_MARK + fingerprint:
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


CHECKED = 100
"""Queries that are searched in both after an upload, unless another number is asked for."""

DEPTH = 10
"""Passages of each list that is compared."""

NEAR = 1e-4
"""Scores are equal if they differ by less, in shares of the query's best one where that is above 1."""

SHOWN_EVERY = 50
"""Blocks between two lines of progress."""


class Upload(NamedTuple):
    """Counts of an upload and of its check by searching in the server and in midmask."""

    passages: int  # rows of the table
    written: int  # rows that this upload wrote
    queries: int  # queries that were searched in both
    equal: int  # queries for which both found the same ten passages with the same scores


def upload(searcher: Searcher, address: str, table: str, *, check: int, show: Callable[[str], None]) -> Upload:
    """Writes what is missing in the table, compares the counts, and searches in both.

    Args:
        searcher: of the collection. address: of the server, as `connected` takes it. table: TABLE or SCHEMA.TABLE.
        check: queries to search in both; 0: none. show: gets each line of progress.

    Raises:
        UserError: as `connected` and `VectorTable`; for token vectors; if the table then has other rows besides.
    """
    if "late" in searcher.views:
        raise UserError("the model gives a vector for each token, and pgvector's columns hold one for each passage")
    if check < 0:
        raise UserError(f"check = {check}: it is a number of queries; 0 checks nothing")
    first = read_views(searcher.passages.place, searcher.blocks[0].name, searcher.views)
    with connected(address) as link:
        target = VectorTable(link, table, column_types(first), searcher.passages.fingerprint)
        written = _write(searcher, target, show)
        passages = _count(searcher, target)
        queries = _sample(searcher, check)
        return Upload(passages, written, len(queries), _equal(searcher, target, queries) if queries else 0)


def _write(searcher: Searcher, target: VectorTable, show: Callable[[str], None]) -> int:
    written, total = 0, sum(block.rows for block in searcher.blocks)
    for block in searcher.blocks:
        views = read_views(searcher.passages.place, block.name, searcher.views)
        stop = block.start + block.rows
        written += target.write(searcher.stored.rows(block.start, stop), views)
        if (block.index + 1) % SHOWN_EVERY == 0 or stop == total:
            show(f"Uploading to {target.name}: {stop:,} of {total:,} passages are there")
    return written


def _count(searcher: Searcher, target: VectorTable) -> int:
    passages, rows = len(searcher.stored.doc_ids), target.count()
    if passages != rows:
        raise UserError(
            f"table {target.name} has {rows:,} rows, the collection {passages:,} passages: rows were added or deleted "
            f"by others; delete the table (in psql: DROP TABLE {target.name}) and run the same again"
        )
    return rows


def _sample(searcher: Searcher, number: int) -> list[str]:
    """Texts of the collection's queries, evenly over its file; where it has none, titles or texts of passages."""
    queries = read_table(searcher.corpus.place / "queries.parquet", ["text"])["text"]
    total = len(queries) or len(searcher.stored.doc_ids)
    rows = np.unique(np.linspace(0, total - 1, num=min(number, total)).astype(np.int64)).tolist()
    if len(queries):
        return [queries[row].as_py() for row in rows]
    return [title or text for _, title, text in map(searcher.stored.row, rows)]


def _equal(searcher: Searcher, target: VectorTable, queries: Sequence[str]) -> int:
    """Number of queries for which midmask and the server return the same ranked list."""
    views = searcher.encode(queries)
    ids = searcher.stored.doc_ids
    lists = zip(*searcher.nearest(views, DEPTH), strict=True)
    exact = [[(ids[row].as_py(), score) for score, row in _pairs(*each) if row >= 0] for each in lists]
    theirs = target.search(views, DEPTH)
    return sum(is_same(*pair) for pair in zip(exact, theirs, strict=True))


def _pairs(scores_K: Floats, rows_K: Ints) -> Iterator[tuple[float, int]]:
    return zip(scores_K.tolist(), rows_K.tolist(), strict=True)


def is_same(own: RankedIds, theirs: RankedIds) -> bool:
    """Whether two lists have the same passages with equal scores, ties aside: of passages with equal scores any order
    and, at the end of the list, any choice is the same.
    """
    if len(own) != len(theirs):
        return False
    if not own:
        return True
    margin = NEAR * max(1.0, abs(own[0][1]))
    known, found = dict(own), dict(theirs)
    level = all(abs(one[1] - other[1]) < margin for one, other in zip(own, theirs, strict=True))
    shared = all(abs(known[name] - found[name]) < margin for name in known.keys() & found.keys())
    alone = [(known | found)[name] for name in known.keys() ^ found.keys()]
    return level and shared and all(abs(score - own[-1][1]) < margin for score in alone)
