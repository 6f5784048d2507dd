"""A corpus is composed of parts: pieces of passages, of queries and of judgements."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from midmask.artifact import Place
from midmask.corpora.chunks import Lines, Piece, SplitPiece, TextPiece, byte_ranges
from midmask.corpora.contents import EXPECTED, UnusableFile
from midmask.errors import UserError

CHECKED = 20
"""Files of a kind of rows whose first bytes are looked at before any is read; the others' are when they are read."""


@dataclass(frozen=True)
class CorpusPieces:
    """Independent, picklable pieces to read, each kind in source order; without queries and qrels it is text only.

    unions: split -> the slices (`test.head`, …) that have a file each and together are the split, which has none.
    beside: files that pieces read beside their own.
    """

    name: str
    docs: tuple[Piece, ...]
    queries: tuple[SplitPiece, ...]
    qrels: tuple[SplitPiece, ...]
    unions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    def files(self) -> Iterator[str]:
        """Files by name within the corpus, each once, in order."""
        seen = set()
        for piece in (*self.docs, *self.queries, *self.qrels):
            if piece.file not in seen:
                seen.add(piece.file)
                yield piece.file
        yield from self.beside

    def check_files(self) -> None:
        """
        Raises:
            UnusableFile: if one of the first text files of a kind of rows holds something else than its form, or all
                files of a kind are empty.
        """
        for pieces in (self.docs, self.queries, self.qrels):
            texts = [piece for piece in pieces if isinstance(piece, TextPiece) and not piece.start]
            empty = [piece for piece in texts[:CHECKED] if piece.is_empty()]
            if empty and len(empty) == len(texts):
                raise UnusableFile(f"{empty[0].folder / empty[0].file} is empty; expected: {EXPECTED[empty[0].form]}")


def find_file(folder: Place, names: list[str], layout: str, *, optional: bool = False) -> str:
    """The one of `names` that lies in the folder; "" if none does and it is optional.

    Raises:
        UserError: if the folder or the file is missing, or two of the names are there.
    """
    present = [name for name in names if (folder / name).exists()]
    if len(present) > 1:
        raise UserError(f"{folder} holds both {' and '.join(present)}; keep one of them")
    if not present and not folder.exists():
        raise UserError(f"there is no folder {folder}; wanted is one with {layout}")
    if not present and not optional:
        alike = [name for name in folder.names() if name.partition(".")[0] == names[0].partition(".")[0]]
        instead = f" (there is {', '.join(alike)})" if alike else ""
        raise UserError(f"{folder}: {' or '.join(names)} is missing{instead}; wanted layout: {layout}")
    return present[0] if present else ""


def split_names(files: list[str], *, prefix: str) -> dict[str, str]:
    """split -> judgement file, by file name: `qrels/test.tsv`, `qrels.train.tsv.gz`, `qrels.dev.small.tsv` (dev),
    `qrels.txt` (test), `qrels.val.tsv` (dev), `qrels/test.long.tsv` (test.long, a slice of test).

    Raises:
        UserError: if two files claim one split.
    """
    splits: dict[str, str] = {}
    for file in sorted(files):
        stem = file.rsplit("/", 1)[-1].removesuffix(".gz")
        stem = stem.removesuffix(".tsv").removesuffix(".txt").removesuffix(".qrels").removeprefix(prefix).strip(".")
        split = {"": "test", "dev.small": "dev", "validation": "dev", "valid": "dev", "val": "dev"}.get(stem, stem)
        if split in splits:
            raise UserError(f"{splits[split]} and {file} both are judgements of the split {split!r}; keep one of them")
        splits[split] = file
    return splits


def text_pieces(
    rows: str,
    folder: Place,
    files: list[str],
    parse: Callable[[str], tuple[Any, ...]],
    limits: dict[str, Any],
    *,
    cut: Callable[[], Any] = Lines,
    first_number: int = 0,
    whole: bool = False,
) -> tuple[TextPiece, ...]:
    """The pieces of files of one kind of rows, a byte range each; `whole`, or with records other than lines, a file
    each.
    """
    pieces: list[TextPiece] = []
    for file in files:
        ranges = byte_ranges(folder, file)
        if whole or cut is not Lines:
            ranges = [(0, None, sum(size for _, _, size in ranges))]
        for start, end, size in ranges:
            pieces.append(
                TextPiece(
                    number=first_number + len(pieces),
                    rows=rows,
                    folder=folder,
                    file=file,
                    start=start,
                    end=end,
                    size=size,
                    parse=parse,
                    cut=cut,
                    **limits,
                )
            )
    return tuple(pieces)
