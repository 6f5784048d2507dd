"""Errors of a store that no second try mends: it is full, read-only, or closed to this user."""

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping

from midmask.errors import UserError

FULL = {errno.ENOSPC: "free some space there", errno.EDQUOT: "free some space there, or have the quota raised"}
CLOSED = dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable")
CLOSED_BY_STORE = {"ACCESS_DENIED": "allow this user to write", "NO_SUCH_BUCKET": "create the bucket"}
"""What to do about an error that no second try mends, by the system's number or the object store's code."""


@contextlib.contextmanager
def refusing(place: str, remedies: Mapping[int, str]) -> Iterator[None]:
    """Turns these errors of the system, met while writing to `place`, into the user's mistake that they are."""
    try:
        yield
    except OSError as error:
        remedy = remedies.get(error.errno or 0)
        if error.errno is None and remedies is CLOSED:
            remedy = next((remedy for code, remedy in CLOSED_BY_STORE.items() if code in str(error)), None)
        if remedy is None:
            raise
        reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
        raise UserError(
            f"cannot write {place}: {reason}. What is finished is kept: {remedy}, or name another "
            "storage (--storage, in Python storage=), and run the same again."
        ) from None
