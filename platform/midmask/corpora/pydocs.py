"""The embedded corpus: docstring bodies of installed packages, their summary lines as queries.

Sources are found without importing them, and read as text, never run. A passage is a docstring without its first
sentence; its title is the module's dotted name (not the object's, which would give the answer away); whether titles are
used is decided downstream. Each body and each question stands there once, near-duplicates in one split (`pair_up`).
"""

import ast
import inspect
import os
import platform
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from midmask.core.randomness import hash64, uniform
from midmask.corpora.chunks import BLOCKS, VALUES, Fault, Piece
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.duplicates import clusters, plain_words, signatures, similar_pairs
from midmask.corpora.reader import Reader
from midmask.corpora.writer import DOCS, QRELS, QUERIES
from midmask.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame

SHORTEST_BODY, SHORTEST_SUMMARY, LONGEST_SUMMARY = 8, 3, 64
"""In words."""

NO_BODY, NO_SUMMARY, LONG_SUMMARY = "no body", "no summary", "long summary"
SHORT_BODY, LONG_BODY, REPEATED = "short body", "oversized body", "body repeats its summary"

ROLE = re.compile(r":[a-z][\w:+-]*:`[~!]?([^`<]*?)\s*(?:<[^`]*>)?`")
RULE_LINE = re.compile(r"^[ \t]*([=\-~^*#.\"'+])\1{2,}[ \t]*$", re.MULTILINE)
SIGNATURE = re.compile(r"[\w.]+\s*\(.*\)(\s*(->|-->|=>)\s*.*)?", re.DOTALL)
ENTRY = re.compile(r"[`*]{0,2}[\w.]+[`*]{0,2}\s*(\([^)]*\))?\s*:|[.:@>-]|\.\.\s")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(*:\[])")
HEADINGS = frozenset(
    "args arguments parameters params returns return yields yield raises raise example examples note notes attributes "
    "references see usage warning warnings todo keyword other methods".split()
)


Docstring = tuple[str, int, str]
"""The dotted name of what it documents, the line it begins on, and the text."""


def docstrings(source: bytes, module: str) -> Iterator[Docstring]:
    """All docstrings of a module in source order, with those that a call attaches (`add_docstr`, `add_newdoc`).

    Raises:
        SyntaxError, ValueError, RecursionError: if this is not Python source.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    if text := ast.get_docstring(tree):
        yield module, 1, text
    yield from _walk_definitions(tree, module)


def _walk_definitions(node: ast.AST, prefix: str) -> Iterator[Docstring]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{child.name}"
            if text := ast.get_docstring(child):
                yield name, child.body[0].lineno, text
            yield from _walk_definitions(child, name)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _read_attached(child.value, prefix)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _walk_definitions(child, prefix)


def _read_attached(call: ast.Call, prefix: str) -> Iterator[Docstring]:
    """The docstring that a call such as add_docstr(torch.abs, "...") gives to compiled code."""
    function = _dotted_name(call.func).rsplit(".", 1)[-1]
    leaves = [leaf for item in call.args for leaf in (item.elts if isinstance(item, ast.Tuple) else [item])]
    if not leaves or not ("add_docstr" in function or "add_newdoc" in function):
        return
    text = _string(leaves[-1])
    named = ".".join(_string(leaf) or _dotted_name(leaf) for leaf in leaves[:-1])
    if text and named:
        name = named if "." in named else f"{prefix}.{named}"
        yield "".join(name.split()), leaves[-1].lineno, inspect.cleandoc(text)


def _dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _string(node: ast.expr) -> str:
    """The text of a constant, or of the template in a call of its `format`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        node = node.func.value
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def pair(text: str, max_characters: int) -> tuple[str, str, str | None]:
    """The first sentence of a docstring and all after it, as lines of words with single spaces; and the rule by which
    they are left out, or None.
    """
    text = RULE_LINE.sub("", ROLE.sub(r"\1", text)).replace("``", "`")
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    while paragraphs and SIGNATURE.fullmatch(paragraphs[0]):
        paragraphs = paragraphs[1:]
    if not paragraphs:
        return "", "", NO_SUMMARY
    summary, *rest = SENTENCE_END.split(paragraphs[0], maxsplit=1)
    body = " ".join([*rest, *paragraphs[1:]])
    return summary, body, _rule(summary, body, max_characters)


def _rule(summary: str, body: str, max_characters: int) -> str | None:
    words = plain_words(summary)
    if not body:
        return NO_BODY
    if len(words) < SHORTEST_SUMMARY or ENTRY.match(summary) or (words[0] in HEADINGS and summary.endswith(":")):
        return NO_SUMMARY
    if len(words) > LONGEST_SUMMARY:
        return LONG_SUMMARY
    if len(body.split()) < SHORTEST_BODY:
        return SHORT_BODY
    if len(body) > max_characters:
        return LONG_BODY
    return REPEATED if " ".join(words) in " ".join(plain_words(body)) else None


NOT_PYTHON = "malformed file"
LEFT_OUT = frozenset(
    "test tests _tests testing vendor _vendor vendored _vendored extern externals external third_party _third_party "
    "thirdparty thirdparty_files node_modules".split()
)
"""Folders of tests, and of somebody else's code."""
TEST_FILE = re.compile(r"test_.*|.*_test\.py|conftest\.py")


Row = tuple[str | None, ...]
"""A docstring's values, or the rule that leaves it out alone (`chunks.VALUES`)."""


@dataclass(frozen=True, kw_only=True)
class SourcePiece(Piece):
    """A module of an installed package; its records are its docstrings. file: its path below the folder that holds the
    package.

    It is found again where it is read, so a worker on another machine reads its own copy of the same version.
    """

    package: str
    version: str

    def records(self) -> Iterator[tuple[int, Row | Fault]]:
        """
        Raises:
            UserError: if this machine has another version of the package.
        """
        if (here := package_version(self.package)) != self.version:
            raise UserError(
                f"pydocs: {self.package} is {here} on {platform.node()} but {self.version} on the driver; install one"
            )
        module = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        source = (package_folder(self.package).parent / self.file).read_bytes()
        try:
            texts = list(docstrings(source, module))
        except (SyntaxError, ValueError, RecursionError) as error:
            yield getattr(error, "lineno", None) or 1, Fault(NOT_PYTHON, raw=str(error))
            return
        for name, line, text in texts:
            summary, body, rule = pair(text.encode(errors="replace").decode(), self.max_characters)
            yield line, (rule,) if rule else (None, name, module, summary, body)


@cache
def package_folder(package: str) -> Path:
    """Where a package's source lies; a top-level package is found without running any of its code.

    Raises:
        UserError: if it is not installed, or is no folder of Python source.
    """
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"packages: {package!r} is not an installed package; install it or leave it out of packages")
    return Path(next(iter(spec.submodule_search_locations)))


_distributions = cache(packages_distributions)
"""Import name -> distributions. It reads the metadata of everything that is installed, so it is asked once."""


@cache
def package_version(package: str) -> str:
    """The version of the distribution that holds an importable package; a build suffix such as `+cpu` is cut."""
    names = _distributions().get(package)
    return version(names[0]).split("+")[0] if names else "unknown"


def _source_sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Modules by path below the folder that holds the package, in order, and their bytes; without those that hold
    tests, or somebody else's code.
    """
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        inside = Path(root).relative_to(folder.parent).as_posix()
        for file in sorted(files):
            if file.endswith(".py") and not TEST_FILE.fullmatch(file):
                yield f"{inside}/{file}", os.path.getsize(os.path.join(root, file))


def open_packages(config: CorpusConfig) -> CorpusPieces:
    """A piece for each module of the installed packages, packages in the order given, modules by path."""
    return CorpusPieces(
        [
            SourcePiece(
                rows="docstrings",
                file=file,
                size=size,
                max_characters=config.max_characters,
                package=package,
                version=package_version(package),
            )
            for package in config.packages
            for file, size in _source_sizes(package_folder(package))
        ]
    )


def packages_identity(config: CorpusConfig) -> dict[str, Any]:
    """The packages in order and their versions, and this Python, whose grammar must parse them."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "packages": [f"{name}=={package_version(name)}" for name in config.packages if package_folder(name)],
    }


READER = Reader(
    "built in: docstrings of installed packages (corpus.packages), with their summary lines as queries",
    open_packages,
    packages_identity,
)


GENERIC = 10
"""A summary that fits more passages than this asks for nothing in particular."""


def pair_up(tables: Iterator[pa.Table], config: CorpusConfig) -> tuple[pa.Table, pa.Table, pa.Table, dict[str, int]]:
    """All docstrings, held in memory (some ten MB), to docs, queries and qrels, each in order of first
    appearance; and how many docstrings there were, and how many each rule left out.

    Bodies that are equal become one passage; summaries that are equal but
    for case and punctuation become one query with several relevant passages. Near-duplicate passages, and passages that
    share a query, form a cluster, which goes to one split by the hash of its first member's module: 80/10/10. A sample
    (max_passages) takes whole clusters in the order of a hash.

    Raises:
        UserError: if no docstring is left.
    """
    table = pa.concat_tables(chain([BLOCKS["docstrings"].empty_table()], tables)).select(VALUES["docstrings"])
    left_out = Counter(table["rule"].to_pylist())
    rules = {str(rule): number for rule, number in left_out.items() if rule}
    rules["docstrings"] = len(table)
    rows = table.filter(pc.is_null(table["rule"])).to_pandas()
    rows["key"] = [" ".join(plain_words(summary)) for summary in rows["summary"]]
    generic = rows.groupby("key")["text"].transform("nunique") > GENERIC
    rules["generic summary"] = int(generic.sum())
    rows = rows[~generic].copy()
    if rows.empty:
        raise UserError("pydocs: no docstring of the packages has both a summary and a body; name other packages")
    again = rows.groupby("name").cumcount() + 1  # overloads, getters and setters
    rows["name"] = [name if count == 1 else f"{name}#{count}" for name, count in zip(rows["name"], again, strict=True)]
    rows["body"], rows["asked"] = rows["text"].factorize()[0], rows["key"].factorize()[0]
    passages = rows.drop_duplicates("body")
    home = _clusters(rows["body"].to_numpy(), rows["asked"].to_numpy(), passages["text"].tolist())
    draw = uniform(passages["module"].iloc[home].tolist(), f"split {config.split_seed}")
    split = np.asarray(["train", "dev", "test"])[np.searchsorted([0.8, 0.9], draw, side="right")]
    rows["split"] = split[rows["body"]]
    kept = _sample(home, config)[rows["body"]]
    rules["max_passages"] = int((~kept).sum())
    return *_tables(rows[kept].copy()), {rule: number for rule, number in sorted(rules.items()) if number}


def _clusters(bodies: NDArray[np.int64], questions: NDArray[np.int64], texts: list[str]) -> NDArray[np.int64]:
    """The lowest passage of each passage's cluster."""
    order = np.argsort(questions, kind="stable")
    together = questions[order[1:]] == questions[order[:-1]]
    pairs = np.stack([bodies[order[:-1][together]], bodies[order[1:][together]]], axis=1)
    return clusters(len(texts), np.concatenate([similar_pairs(signatures(texts)), pairs]))


def _sample(home: NDArray[np.int64], config: CorpusConfig) -> NDArray[np.bool_]:
    """True for each passage to keep: clusters in the order of their hash, as long as they fit into max_passages."""
    if config.max_passages is None:
        return np.ones(len(home), bool)
    roots, sizes = np.unique(home, return_counts=True)
    order = np.argsort(hash64([str(root) for root in roots], f"sample {config.split_seed}"), kind="stable")
    fits = np.cumsum(sizes[order]) <= config.max_passages
    return np.isin(home, roots[order][fits])


def _tables(rows: "DataFrame") -> tuple[pa.Table, pa.Table, pa.Table]:
    """docs, queries and qrels of the rows that are kept."""
    docs, queries = rows.drop_duplicates("body"), rows.drop_duplicates("asked")
    rows["doc_id"] = rows["body"].map(docs.set_index("body")["name"])
    rows["query_id"] = "q:" + rows["asked"].map(queries.set_index("asked")["name"])
    judged = rows.drop_duplicates(["asked", "body"])
    return (
        _table(DOCS, docs["name"], docs["module"], docs["text"]),
        _table(QUERIES, "q:" + queries["name"], queries["summary"]),
        _table(QRELS, judged["split"], judged["query_id"], judged["doc_id"], [1] * len(judged)),
    )


def _table(schema: pa.Schema, *columns: Iterable[Any]) -> pa.Table:
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)
