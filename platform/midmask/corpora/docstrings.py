"""Python source, read as text, to pairs of a summary and the body it was written for; never imported or run."""

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

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


class Docstring(NamedTuple):
    """A docstring with the dotted name of what it documents and the line it begins on."""

    name: str
    line: int
    text: str


class Pair(NamedTuple):
    """Both are lines of words with single spaces. rule: why it is left out, or None."""

    summary: str
    body: str
    rule: str | None


def docstrings(source: bytes, module: str) -> Iterator[Docstring]:
    """All docstrings of a module in source order, with those that a call attaches (`add_docstr`, `add_newdoc`).

    Raises:
        SyntaxError, ValueError, RecursionError: if this is not Python source.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    if text := ast.get_docstring(tree):
        yield Docstring(module, 1, text)
    yield from _walk_definitions(tree, module)


def _walk_definitions(node: ast.AST, prefix: str) -> Iterator[Docstring]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{child.name}"
            if text := ast.get_docstring(child):
                yield Docstring(name, child.body[0].lineno, text)
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
        yield Docstring("".join(name.split()), leaves[-1].lineno, inspect.cleandoc(text))


def _dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _string(node: ast.expr) -> str:
    """The text of a constant, or of the template in a call of its `format`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        node = node.func.value
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def pair(text: str, max_characters: int) -> Pair:
    """The first sentence of a docstring, and all after it; or the rule by which it is left out."""
    text = RULE_LINE.sub("", ROLE.sub(r"\1", text)).replace("``", "`")
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    while paragraphs and SIGNATURE.fullmatch(paragraphs[0]):
        paragraphs = paragraphs[1:]
    if not paragraphs:
        return Pair("", "", NO_SUMMARY)
    summary, *rest = SENTENCE_END.split(paragraphs[0], maxsplit=1)
    body = " ".join([*rest, *paragraphs[1:]])
    return Pair(summary, body, _rule(summary, body, max_characters))


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


def plain_words(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.findall(r"\w+", text.lower())
