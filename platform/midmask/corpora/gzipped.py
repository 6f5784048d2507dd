"""Damaged gzip streams: one boundary for everyone who reads files that may be gzip'd."""

import contextlib
import gzip
import zlib
from collections.abc import Iterator

from midmask.errors import UserError, reason


@contextlib.contextmanager
def whole_stream(name: object) -> Iterator[None]:
    """Reading in here raises UserError where a gzip stream is cut off or damaged; `name`: of the file, for people."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name}: broken gzip stream ({reason(error)}); copy the file again") from None
