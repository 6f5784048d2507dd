"""Uploads a collection's vectors to a PostgreSQL server with the extension pgvector, with ids, titles and texts.

FOLDER is a model's, or minilm. The collection is encoded if it was not before. A killed upload goes on when the same is
typed again. At the end, queries of the collection are searched in the server and in midmask. A password is read from
PGPASSWORD or ~/.pgpass.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_set_flag, add_storage_flag
from midmask.corpora.formats import name_forms
from midmask.errors import UserError


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of a model, or minilm")
    parser.add_argument("--corpus", required=True, metavar="NAME", help=f"whose passages: {name_forms()}")
    parser.add_argument("--to", required=True, metavar="URL", help="postgresql://USER@HOST:PORT/DATABASE")
    parser.add_argument("--table", required=True, metavar="NAME", help="TABLE or SCHEMA.TABLE, made if it is missing")
    parser.add_argument(
        "--check", type=int, default=100, metavar="N", help="queries searched in both; 0: none; default: 100"
    )
    add_set_flag(parser, "corpus, e.g. corpus.bad_rows_threshold=0.1")
    add_storage_flag(parser)


def work(flags: Namespace) -> None:
    from midmask.api.catalogue import check_reach, read_as
    from midmask.api.storage import open_store, show_line
    from midmask.app.job import resolve_corpus
    from midmask.choice.rankers import SearchStore
    from midmask.corpora import CorpusConfig
    from midmask.exchange.pgvector.server import check_server
    from midmask.exchange.pgvector.upload import upload
    from midmask.pretrained import model_folder

    check_server(flags.to)
    folder = model_folder(flags.folder, field="FOLDER").absolute()
    changes = dict(flags.changes)
    check_reach(changes, ("corpus",), "a search")
    corpus = read_as(CorpusConfig(name=resolve_corpus(flags.corpus, Path.cwd()), splits="official"), changes)
    searcher = SearchStore(corpus, open_store(flags.storage)).open_searcher(folder, show_line)
    done = upload(searcher, flags.to, flags.table, check=flags.check, show=show_line)
    print(f"{flags.table}: {done.passages:,} passages, {done.written:,} of them written by this upload")
    if done.queries:
        print(f"equal lists of 10: {done.equal:,} of {done.queries:,} queries, searched in the server and in midmask")
    if done.equal < done.queries:
        raise UserError(
            f"table {flags.table}: {done.queries - done.equal:,} queries find other passages there than in midmask, so "
            f"rows were changed by others; delete the table (in psql: DROP TABLE {flags.table}) and upload again"
        )
