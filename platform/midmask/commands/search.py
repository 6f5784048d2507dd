"""The command `search`: queries typed by hand, answered by a verdict's system or a model."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from midmask.app.flags import add_set_flag, add_storage_flag
from midmask.commands import program
from midmask.corpora.config import name_forms
from midmask.errors import UserError

if TYPE_CHECKING:
    from midmask.retrieve.searcher import Hit


WIDTH = 160
"""Characters of a passage that are shown."""


def _search_flags(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of a verdict or a model, or minilm")
    parser.add_argument("query", nargs="*", help="words of one query; without, queries are read, one a line")
    parser.add_argument("--system", metavar="LABEL", help="of the verdict; default: the recommended one")
    parser.add_argument("--corpus", metavar="NAME", help=f"that a model searches: {name_forms()}")
    parser.add_argument("-k", type=int, default=5, metavar="N", help="passages that are shown; default: 5")
    add_set_flag(parser, "corpus, e.g. corpus.bad_rows_threshold=0.1")
    add_storage_flag(parser)


@program(_search_flags)
def search(flags: Namespace) -> None:
    """Searches by hand: type a query, or give it with the command.

    FOLDER is a verdict's (`midmask choose`), whose best system answers unless another is named; or a model's, or
    minilm, which then searches --corpus. The first search encodes the collection, once.

    Examples:
      midmask search minilm --corpus docs:FOLDER how do I open a file
      midmask search verdicts/NAME
    """
    search = _verdict_search(flags) if (Path(flags.folder) / "verdict.json").is_file() else _model_search(flags)
    for query in [" ".join(flags.query)] if flags.query else _typed():
        for number, hit in enumerate(search(query, flags.k), start=1):
            title = f"{hit.title} · " if hit.title else ""
            print(f"{number}. {hit.score:.3f}  {hit.doc_id}\n   {title}{' '.join(hit.text.split())[:WIDTH]}")
        print(flush=True)


def _typed() -> Iterable[str]:
    """Queries as they are typed, until the end of the input."""
    if sys.stdin.isatty():
        print("type a query; Ctrl-D ends", file=sys.stderr)
    return (line.strip() for line in sys.stdin if line.strip())


def _verdict_search(flags: Namespace) -> "Callable[[str, int], list[Hit]]":
    from midmask.api.calls import ProgressLines
    from midmask.choice.side_by_side import SideBySide

    for flag in ("corpus", "changes"):
        if value := getattr(flags, flag):
            name = "set" if flag == "changes" else flag
            raise UserError(f"--{name} {value}: a verdict searches its own documents; leave the flag out")
    opened = SideBySide(flags.folder, ProgressLines())
    label = flags.system or opened.recommended
    opened.open(label)
    about = f"{label}, over {opened.verdict.passages:,} passages of {opened.verdict.corpus}"
    print(about, file=sys.stderr, flush=True)
    return lambda query, k: opened.search(label, query, k)


def _model_search(flags: Namespace) -> "Callable[[str, int], list[Hit]]":
    from midmask.api.calls import check_reach, open_store, read_as, runner_in
    from midmask.app.job import resolve_corpus
    from midmask.choice.side_by_side import SearchStore
    from midmask.corpora.config import CorpusConfig
    from midmask.store.pretrained import model_folder

    if not flags.corpus:
        raise UserError(
            f"{flags.folder}: name what the model searches, as --corpus docs:FOLDER, or give a verdict's folder"
        )
    if flags.system:
        raise UserError(f"--system {flags.system}: only a verdict has several; leave the flag out")
    folder = model_folder(flags.folder, field="FOLDER").absolute()
    changes = dict(flags.changes)
    check_reach(changes, ("corpus",), "a search")
    corpus = read_as(CorpusConfig(name=resolve_corpus(flags.corpus, Path.cwd()), splits="official"), changes)
    return SearchStore(corpus, runner_in(open_store(flags.storage), progress=True)).open_encoder(folder)
