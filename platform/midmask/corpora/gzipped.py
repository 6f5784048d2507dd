"""Files that may be gzip streams: opened by their names, and one boundary for what is wrong with them."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from midmask.artifact import Place
from midmask.corpora.contents import HEAD, Form, refuse_other_contents
from midmask.errors import UserError, reason


class BrokenFile(Exception):
    """What is wrong with a file from here on, where no further row can be found."""


@contextlib.contextmanager
def whole_stream(name: object) -> Iterator[None]:
    """Reading in here raises UserError where a gzip stream is cut off or damaged; `name`: of the file, for people."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name}: broken gzip stream ({reason(error)}); copy the file again") from None


@contextlib.contextmanager
def open_file(folder: Place, file: str, form: Form | None = "text") -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if its name ends in .gz.

    Args:
        form: what its first bytes must be the beginning of; None: they are not looked at.

    Raises:
        UserError: if the file is not there, cannot be read, is not a text, or its gzip stream is broken.
        UnusableFile: if it holds something else.
    """
    with _name_errors(folder, file), whole_stream(folder / file), (folder / file).reading() as raw:
        stream = io.BufferedReader(raw, 1 << 20)  # type: ignore[type-var]
        if form is not None:
            refuse_other_contents(str(folder / file), stream.peek(HEAD)[:HEAD], form)
        yield gzip.GzipFile(fileobj=stream) if file.endswith(".gz") else stream  # type: ignore[misc]


@contextlib.contextmanager
def _name_errors(folder: Place, file: str) -> Iterator[None]:
    place = folder / file
    try:
        yield
    except FileNotFoundError:
        raise UserError(
            f"{place} is not there; every machine that reads needs it: use a shared folder or a URI"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: not a text in UTF-8 ({error}); convert the file") from None
    except BrokenFile as error:
        raise UserError(f"{place}: {error}") from None
    except OSError as error:  # after zlib's, which `whole_stream` has made a UserError: a folder, no permission, a disk
        if place.is_folder():
            contents = ", ".join(place.names()[:3]) or "nothing"
            raise UserError(f"{place} is a folder, which contains {contents}; expected: a file of this name") from None
        raise UserError(f"{place} cannot be read ({reason(error)})") from None


def file_size(folder: Place, file: str) -> int:
    """Bytes on disk.

    Raises:
        UserError: if the file is not there, or is a folder.
    """
    with _name_errors(folder, file), (folder / file).reading() as stream:
        return int(stream.size())  # type: ignore[attr-defined]
