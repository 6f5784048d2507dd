"""Small results that are kept as JSON in this machine's cache folder, so that later processes need not compute them."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from midmask.store.place import cache_folder

T = TypeVar("T")


def recall(name: str, parse: Callable[[Any], T], compute: Callable[[], T], plain: Callable[[T], Any]) -> T:
    """The cached value of an earlier process, or else a new value, which is then cached. A file that cannot be read, or
    that `parse` refuses with a ValueError or TypeError, is written anew; a disk that takes none is no error.

    Args:
        name: relative path of the file, which holds all that the value depends on, as a fingerprint.
        parse: from plain data to the value. plain: the way back.
    """
    file = cache_folder() / name
    with suppress(OSError, ValueError, TypeError):
        return parse(json.loads(file.read_text("utf-8")))
    value = compute()
    draft = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(plain(value)), "utf-8")
        draft.replace(file)  # whole, or not at all
    return value
