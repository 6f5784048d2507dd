"""Names of files that are no data: leftovers of systems, archives and editors, and files about a collection."""

import logging
import re
from functools import cache

from midmask.artifact import Place

log = logging.getLogger(__name__)

LEFTOVERS = re.compile(
    r"[.~#$].*|.*(~|\.(bak|swp|swo|tmp|orig|old|part|crdownload|lock|md5|sha1|sha256|sha512))"
    r"|thumbs\.db|ehthumbs\.db|desktop\.ini|icon\r|__macosx|lost\+found|system volume information",
    re.IGNORECASE,
)
ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|notice|notes?|changelog|changes|citation|authors|manifest|checksums|md5sums?|sha\d+sums?)"
    r"([ _-][^.]*)?(\.(txt|md|rst|html?|pdf|bib|cff))?(\.gz)?",
    re.IGNORECASE,
)
NAMED = 10
"""Names that a line of the log shows."""


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name is hidden (as `._*` of macOS's archives), a backup, or a system's."""
    return LEFTOVERS.fullmatch(name) is not None


def data_files(folder: Place, ends: tuple[str, ...] = ()) -> list[str]:
    """Sorted names in a folder, without those that are no data: leftovers, READMEs and the like, and, where endings are
    given, names with none of these. What is passed over is named in the log, once a process.
    """
    names = folder.names()
    data = [name for name in names if not (is_leftover(name) or ABOUT.fullmatch(name)) and name.endswith(ends or "")]
    if passed := tuple(sorted({*names} - {*data})):
        _log_passed(str(folder), passed)
    return data


@cache
def _log_passed(folder: str, names: tuple[str, ...]) -> None:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    log.info("%s: not read, because their names are not those of data: %s%s", folder, ", ".join(names[:NAMED]), more)
