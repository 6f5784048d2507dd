"""Vectors in a real PostgreSQL server: the same search as midmask's, whatever was killed or changed on the way."""

import multiprocessing
from collections.abc import Iterator

import numpy as np
import pytest

from midmask.errors import UserError
from midmask.exchange.pgvector import Upload, VectorTable, column_types, connected, is_same, upload
from midmask.retrieve.searcher import Searcher
from midmask.retrieve.views import Views, read_views
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.postgres import PASSWORD, postgres
from tests.support.retrieve.collection import REPRESENTATIONS, encoded, write_bi_encoder

PASSAGES = 300
KINDS = ["dense", "lexical", "hybrid"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with postgres() as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        yield found


@pytest.fixture(scope="module")
def searchers(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Searcher]:
    """Of 300 passages in 8 blocks, by kind of vectors."""
    tokens = Artifact(inputs["tokens"].place, {**inputs["tokens"].record, "config": {"query_length": 8}})
    found = {}
    for kind, representation in REPRESENTATIONS.items():
        root = Place(str(tmp_path_factory.mktemp(kind)))
        model = write_bi_encoder(root / "model", inputs["tokens"], representation)
        vectors = encoded({**inputs, "model": model}, root)["passages"]
        own = Artifact(vectors.place, {**vectors.record, "fingerprint": f"vectors of {kind}"})
        found[kind] = Searcher(model=model, corpus=inputs["corpus"], tokens=tokens, passages=own)
    return found


@pytest.fixture
def server(address: str) -> Iterator[object]:
    """A cursor of the test's own connection, which commits each statement. Tables are gone at the end."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as link, psycopg.ClientCursor(link) as cursor:
        yield cursor
        cursor.execute("DROP SCHEMA public CASCADE")
        cursor.execute("CREATE SCHEMA public")


def sent(searcher: Searcher, address: str, table: str = "passages", check: int = 0) -> Upload:
    return upload(searcher, address, table, check=check, show=lambda line: None)


def stored(searcher: Searcher) -> Views:
    return Views.concat([read_views(searcher.passages.place, block.name, searcher.views) for block in searcher.blocks])


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_finds_what_midmask_finds(kind: str, searchers: dict[str, Searcher], address: str, server) -> None:
    """By plain SQL of a user, for the collection's queries; passages come in twos, whose scores are equal."""
    searcher = searchers[kind]
    assert sent(searcher, address, check=40) == (PASSAGES, PASSAGES, 40, 40)
    queries = ["gab noc", *(searcher.stored.row(row)[2][:30] for row in range(0, 90, 3))]
    views = searcher.encode(queries)
    score = {"dense": "-(dense <#> %s)", "lexical": "-(lexical <#> %s)"}
    best = " + ".join(score[view] for view in searcher.views)
    for row, hits in enumerate(searcher.search(queries, k=10)):
        vectors = []
        if views.dense_ND is not None:
            vectors.append(str(views.dense_ND[row].tolist()))
        if views.lexical is not None:
            pairs = zip(*views.lexical.row(row), strict=True)
            vectors.append(f"{{{','.join(f'{term + 1}:{weight}' for term, weight in pairs)}}}/{views.lexical.width}")
        server.execute(
            f'SELECT doc_id, {best} AS score, title, text FROM passages ORDER BY 2 DESC, doc_id COLLATE "C" LIMIT 10',
            vectors,
        )
        found = server.fetchall()
        assert [one[1] for one in found] == pytest.approx([hit.score for hit in hits], rel=1e-4, abs=1e-4)
        assert is_same([(hit.doc_id, hit.score) for hit in hits], [one[:2] for one in found])
        payload = {hit.doc_id: (hit.title, hit.text) for hit in hits}
        assert all(payload[one[0]] == one[2:] for one in found if one[0] in payload)


def test_every_bit_of_a_vector_arrives(searchers: dict[str, Searcher], address: str, server) -> None:
    searcher = searchers["hybrid"]
    sent(searcher, address)
    views = stored(searcher)
    server.execute("SELECT doc_id, dense::text, lexical::text FROM passages")
    rows = {doc_id: (dense, lexical) for doc_id, dense, lexical in server.fetchall()}
    assert views.dense_ND is not None and views.lexical is not None
    for row, doc_id in enumerate(searcher.stored.doc_ids.to_pylist()):
        dense, lexical = rows[doc_id]
        np.testing.assert_array_equal(np.array(dense.strip("[]").split(","), np.float32), views.dense_ND[row])
        entries, width = lexical.strip("{").split("}/")
        pairs = [entry.split(":") for entry in entries.split(",") if entry]
        terms, weights = views.lexical.row(row)
        assert ([int(term) - 1 for term, _ in pairs], int(width)) == (terms.tolist(), views.lexical.width)
        np.testing.assert_array_equal(np.array([weight for _, weight in pairs], np.float32), weights)


def test_a_second_upload_changes_nothing(searchers: dict[str, Searcher], address: str, server) -> None:
    sent(searchers["dense"], address)
    server.execute("SELECT doc_id, ctid::text, xmin::text FROM passages ORDER BY 1")
    before = server.fetchall()
    assert sent(searchers["dense"], address) == (PASSAGES, 0, 0, 0)
    server.execute("SELECT doc_id, ctid::text, xmin::text FROM passages ORDER BY 1")
    assert server.fetchall() == before


def blocked(searcher: Searcher, address: str, server, action: str) -> None:
    """Makes the table, in which the first passage of the fourth block does something when it is written."""
    with connected(address) as link:
        VectorTable(link, "passages", column_types(stored(searcher)), searcher.passages.fingerprint)
    server.execute(
        f"CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM {action}; RETURN NEW; END $$"
    )
    name = searcher.stored.row(searcher.blocks[3].start)[0]
    server.execute(
        f"CREATE TRIGGER act BEFORE INSERT ON passages FOR EACH ROW WHEN (NEW.doc_id = '{name}') EXECUTE FUNCTION act()"
    )


def test_an_upload_that_is_killed_goes_on(searchers: dict[str, Searcher], address: str, server) -> None:
    """Another process waits in its fourth block, for a lock that is held here, and is killed there."""
    searcher = searchers["hybrid"]
    blocked(searcher, address, server, "pg_advisory_xact_lock(7)")
    server.execute("SELECT pg_advisory_lock(7)")
    process = multiprocessing.get_context("fork").Process(target=sent, args=(searcher, address))
    process.start()
    waits = False
    while not waits:
        assert process.is_alive()
        server.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        waits = bool(found := server.fetchall())
    process.kill()
    process.join()
    server.execute("SELECT count(*) FROM passages")
    before = sum(block.rows for block in searcher.blocks[:3])
    assert server.fetchone()[0] == before
    server.execute("SELECT pg_terminate_backend(%s, 10000)", found[0])  # a server notices a dead client when it answers
    server.execute("SELECT pg_advisory_unlock(7)")
    assert sent(searcher, address, check=20) == (PASSAGES, PASSAGES - before, 20, 20)


def test_changed_rows_are_found_out(searchers: dict[str, Searcher], address: str, server) -> None:
    """A vector of zeros is missed by the queries that find it; a row too many by the count."""
    searcher = searchers["dense"]
    sent(searcher, address)
    hit = searcher.search([searcher.stored.row(0)[2]], k=1)[0][0]
    zeros = f"[{','.join('0' * stored(searcher).dense_ND.shape[1])}]"
    server.execute("UPDATE passages SET dense = %s WHERE doc_id = %s", [zeros, hit.doc_id])
    done = sent(searcher, address, check=40)
    assert done.queries == 40 and done.equal < 40
    server.execute("INSERT INTO passages SELECT 'another', title, text, dense FROM passages LIMIT 1")
    with pytest.raises(UserError, match=r"has 301 rows, the collection 300 passages"):
        sent(searcher, address)


def test_an_index_of_the_table_does_not_change_the_search(searchers: dict[str, Searcher], address: str, server) -> None:
    """An approximate index that finds little is there, and the comparison is still of all rows."""
    searcher = searchers["dense"]
    sent(searcher, address)
    server.execute("CREATE INDEX ON passages USING hnsw (dense vector_ip_ops) WITH (m = 2, ef_construction = 4)")
    server.execute("ALTER ROLE postgres SET hnsw.ef_search = 1")
    server.execute("ALTER ROLE postgres SET enable_seqscan = off")
    try:
        assert sent(searcher, address, check=40) == (PASSAGES, 0, 40, 40)
    finally:
        server.execute("ALTER ROLE postgres RESET ALL")


def test_tables_of_others_are_refused(searchers, address, server, monkeypatch) -> None:
    sent(searchers["dense"], address)
    with pytest.raises(UserError, match=r"column lexical is missing.*DROP TABLE passages"):
        sent(searchers["hybrid"], address)
    dense = searchers["dense"]
    others = Artifact(dense.passages.place, {**dense.passages.record, "fingerprint": "others"})
    monkeypatch.setattr(dense, "passages", others)
    with pytest.raises(UserError, match="another model or collection"):
        sent(dense, address)
    server.execute("CREATE TABLE narrow (doc_id text PRIMARY KEY, title text, text text, dense vector(3))")
    with pytest.raises(UserError, match=r"column dense is vector\(3\), that of this model's passages is vector\("):
        sent(searchers["dense"], address, "narrow")
    with pytest.raises(UserError, match="small letters"):
        sent(searchers["dense"], address, "Passages; DROP TABLE passages")


def test_addresses_are_refused_in_one_line(searchers, address, monkeypatch) -> None:
    """No answer, a wrong password, a password in the address."""
    with pytest.raises(UserError, match=r"cannot connect: .*Connection refused.*to check host"):
        sent(searchers["dense"], "postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(UserError, match=r"leave it out and set PGPASSWORD") as error:
        sent(searchers["dense"], address.replace("postgres@", f"postgres:{PASSWORD}@"))
    assert PASSWORD not in str(error.value)
    monkeypatch.setenv("PGPASSWORD", "a wrong one")
    with pytest.raises(UserError, match="password authentication failed") as error:
        sent(searchers["dense"], address)
    assert "a wrong one" not in str(error.value)
