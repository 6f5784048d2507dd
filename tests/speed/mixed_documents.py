"""Documents without labels for `midmask choose`, made of what the installed packages say of themselves.

python -m tests.speed.mixed_documents --out PLACE

    PLACE/folder      300 files: 90 .md, 90 .rst, 60 .txt, 50 .html, 10 .pdf (pages that chromium printed)
    PLACE/packages.csv       name, text: the descriptions of the installed Python packages
    PLACE/functions.parquet  name, text: docstrings of scipy's public functions and classes

Files come from the environment's packages and from /usr/share, always the same ones on one machine.
"""

import argparse
import csv
import hashlib
import importlib
import inspect
import pkgutil
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import scipy

WANTED = {".md": 90, ".rst": 90, ".txt": 60, ".html": 50}
PRINTED = 10
"""Pages of HTML, beside the others, that become PDF."""

SIZES = range(2_000, 200_000)
"""Bytes of a file: shorter ones are licences and lists, longer ones whole manuals."""

SHORTEST = 300
"""Characters of a row's text."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    (out / "folder").mkdir(parents=True)
    for ending, count in WANTED.items():
        found = files(ending)
        for number, file in enumerate(found[:count]):
            shutil.copy(file, out / "folder" / f"{ending[1:]}-{number:02d}-{file.name}")
        if ending == ".html":
            for number, file in enumerate(found[count : count + PRINTED]):
                print_page(file, out / "folder" / f"pdf-{number:02d}-{file.stem}.pdf")
    with open(out / "packages.csv", "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("name", "text"), *sorted(descriptions())])
    names, texts = zip(*sorted(docstrings().items()), strict=True)
    pq.write_table(pa.table({"name": names, "text": texts}), out / "functions.parquet")


def files(ending: str) -> list[Path]:
    """In an order that has nothing to do with their folders."""
    roots = [Path(sysconfig.get_paths()["purelib"]), Path("/usr/share")]
    found = [file for root in roots for file in root.rglob(f"*{ending}") if file.is_file()]
    wanted = [file for file in found if file.stat().st_size in SIZES and "LICENSE" not in file.name.upper()]
    return sorted(wanted, key=lambda file: hashlib.sha256(str(file).encode()).digest())


def print_page(page: Path, out: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        command = ["chromium", *flags, f"--user-data-dir={profile}", f"--print-to-pdf={out}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)


def descriptions() -> Iterator[tuple[str, str]]:
    for package in distributions():
        text = package.metadata.get_payload() or package.metadata["Description"] or ""
        if len(text) >= SHORTEST:
            yield package.metadata["Name"], text


def docstrings() -> dict[str, str]:
    """Of what scipy's public modules define or export; a text once, under the shortest name."""
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(scipy.__path__, "scipy."):
        if module.name.split(".")[-1].startswith("_") or "conftest" in module.name:
            continue
        loaded = importlib.import_module(module.name)
        for name in getattr(loaded, "__all__", ()):
            own = getattr(loaded, name, None)
            text = inspect.getdoc(own) or ""
            if len(text) >= SHORTEST and (inspect.isroutine(own) or inspect.isclass(own)):
                found.setdefault(text, f"{module.name}.{name}")
    return {name: text for text, name in found.items()}


if __name__ == "__main__":
    main()
