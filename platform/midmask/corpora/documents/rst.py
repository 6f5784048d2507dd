"""reStructuredText (.rst): headings by their underlines, paragraphs, and the bodies of directives.

A small recogniser of lines, not a parser: a line of text with a line of one punctuation character below it, at least as
long, is a heading; its level is that of the first heading with the same character (and overline). Lines of directives,
their options, comments, targets and roles' names are left out; what they contain stays.
"""

import re
from collections.abc import Iterable, Iterator

from midmask.corpora.documents.blocks import TextBlock, heading, text_blocks
from midmask.corpora.documents.encodings import read_lines
from midmask.corpora.documents.source import BadRow, DocumentFile, ParsedDocument

_RULE = re.compile(r"([!-/:-@\[-`{-~])\1+\s*")
_MARKUP = re.compile(r"\s*\.\.(?:\s|$).*", re.DOTALL)
_KEPT = re.compile(r"\s*\.\. (?:rubric|topic|admonition)::\s+(.+)", re.DOTALL)
_OPTION = re.compile(r"\s+:[\w-]+:(?:\s.*)?", re.DOTALL)
_INLINE = (
    (re.compile(r"(?::[\w:+.-]{1,40}:)?`([^`<>]*?)\s?<[^`<>]*>`_{0,2}"), r"\1"),  # :ref:`words <target>`, links
    (re.compile(r"(?::[\w:+.-]{1,40}:)?`{1,2}([^`]+)`{1,2}_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*\\])\*{1,2}(?=\S)|(?<=[^\s*\\])\*{1,2}(?![\w*])"), ""),
)


def read_documents(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One document."""
    encoding, lines = read_lines(source)
    yield ParsedDocument("", rst_blocks(lines), encoding)


def rst_blocks(lines: Iterable[str]) -> Iterator[TextBlock]:
    """The blocks of reStructuredText, from lines with their line ends."""
    levels: list[tuple[str, bool]] = []
    waiting: list[str] = []
    for group in _groups(lines):
        if len(group) == 1:
            waiting.append(group[0])
            if not group[0].strip():
                yield from _paragraphs(waiting)
                waiting = []
            continue
        yield from _paragraphs(waiting)
        waiting = []
        style = (group[-1][0], len(group) == 3)
        if style not in levels:
            levels.append(style)
        yield heading(_plain(group[-2]), levels.index(style) + 1)
    yield from _paragraphs(waiting)


def _groups(lines: Iterable[str]) -> Iterator[list[str]]:
    """Each heading with its overline, if it has one, and its underline; each other line alone."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) >= 2 and _is_heading(held[-2], line):
            over = len(held) == 3 and _is_rule(held[0])
            for other in held[: -3 if over else -2]:
                yield [other]
            yield held[-3 if over else -2 :]
            held = []
        elif len(held) == 3:
            yield [held.pop(0)]
    for line in held:
        yield [line]


def _is_rule(line: str) -> bool:
    return _RULE.fullmatch(line) is not None


def _is_heading(text: str, under: str) -> bool:
    title = text.strip()
    return bool(title) and _is_rule(under) and len(under.rstrip()) >= len(title) and not _is_rule(text)


def _paragraphs(lines: list[str]) -> Iterator[TextBlock]:
    """The paragraphs of the lines between two blank lines or headings."""
    kept: list[str] = []
    in_markup = False
    for line in lines:
        if match := _KEPT.fullmatch(line):
            kept.append(match[1])
        elif _MARKUP.fullmatch(line):
            in_markup = True
        elif not (in_markup and _OPTION.fullmatch(line)) and not _is_rule(line):
            kept.append(line)
    yield from text_blocks(_plain(line) for line in kept)


def _plain(text: str) -> str:
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text.replace("::\n", ":\n")
