"""Names of files that are no data: leftovers of systems, archives and editors, and files about a collection."""

import re
from collections.abc import Iterable, Iterator

from midmask.artifact import Place

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
DESCRIPTIONS = {"state.json", "dataset_info.json", "dataset_dict.json"}
"""Files that Hugging Face's `datasets` writes beside its tables."""

NAMED = 10
"""Names that a message shows."""


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name is hidden (as `._*` of macOS's archives), a backup, or a system's."""
    return LEFTOVERS.fullmatch(name) is not None


def data_files(folder: Place, ends: tuple[str, ...] = ("",)) -> list[str]:
    """Sorted names in a folder with one of these endings, without those that are no data: leftovers, READMEs and the
    like.
    """
    return [
        name for name in folder.names() if name.endswith(ends) and not is_leftover(name) and not ABOUT.fullmatch(name)
    ]


def unread_names(root: Place, files: Iterable[str]) -> Iterator[tuple[Place, str]]:
    """Each folder on the way to the files that are read, and the names of what lies beside them, for a message."""
    read = set()
    for file in files:
        while file:
            read.add(file)
            file = file.rpartition("/")[0]
    for inside in sorted({path.rpartition("/")[0] for path in read}):
        folder = root / inside if inside else root
        names = [name for name in folder.names() if (f"{inside}/{name}" if inside else name) not in read]
        if names := [name for name in names if name not in DESCRIPTIONS]:
            more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
            yield folder, f"{', '.join(names[:NAMED])}{more}"
