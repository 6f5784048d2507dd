"""The store that the browser's tests share, with the pages over it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Site:
    """Where the pages are served, the store, and the verdict's folder."""

    address: str
    uri: str
    verdict: Path
