"""The machine's manual pages as a collection with judgements: which page does a line in NAME describe?

python -m tests.speed.manual_pages --out PLACE

    PLACE/corpus.jsonl, queries.jsonl, qrels/test.tsv   BEIR's layout

A query is what the authors say of a page in one line ("list directory contents"). Its relevant passages are the
DESCRIPTION of that page and of every other one with the same line. Passages have no titles, since a command's name says
little. Pages of one tool's thousands of subcommands (`gcloud`) are left out. Needs groff and /usr/share/man.
"""

import argparse
import gzip
import json
import re
import subprocess
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PAGES = Path("/usr/share/man")
SECTIONS = "12345678"
LEFT_OUT = ("gcloud", "bq", "gsutil")

SHORTEST, LONGEST = 30, 200
"""Words of a passage: shorter descriptions are left out, longer ones end there."""

FEWEST = 3
"""Words of a query."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    paths = [path for section in SECTIONS for path in sorted((PAGES / f"man{section}").glob("*.gz"))]
    wanted = [path for path in paths if not path.is_symlink() and not path.name.startswith(LEFT_OUT)]
    with ThreadPoolExecutor(2) as pool:
        pages = dict(zip(wanted, pool.map(line_and_description, wanted), strict=True))
    passages: dict[str, str] = {}  # description -> id, so that a page under two names is one passage
    relevant: dict[str, set[str]] = defaultdict(set)
    for path, (line, description) in pages.items():
        words = description.split()
        if len(words) < SHORTEST or len(line.split()) < FEWEST:
            continue
        page = passages.setdefault(" ".join(words[:LONGEST]), path.name.removesuffix(".gz"))
        relevant[line].add(page)
    (out / "qrels").mkdir(parents=True)
    corpus = [{"_id": page, "title": "", "text": text} for text, page in passages.items()]
    ids = {line: f"q{number}" for number, line in enumerate(relevant)}
    write_lines(out / "corpus.jsonl", [json.dumps(one, ensure_ascii=False) for one in corpus])
    queries = [{"_id": ids[line], "text": line} for line in relevant]
    write_lines(out / "queries.jsonl", [json.dumps(one, ensure_ascii=False) for one in queries])
    pairs = [f"{ids[line]}\t{page}\t1" for line, found in relevant.items() for page in sorted(found)]
    write_lines(out / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *pairs])
    print(f"{len(corpus):,} passages, {len(queries):,} queries, {len(pairs):,} judgements in {out}")


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def line_and_description(path: Path) -> tuple[str, str]:
    """What a page says of itself in one line, and its section DESCRIPTION; "" for what it lacks."""
    source = gzip.decompress(path.read_bytes())
    command = ["groff", "-Tutf8", "-mandoc", "-t", "-P-cbou", "-rHY=0"]
    text = subprocess.run(command, input=source, capture_output=True, check=False).stdout.decode("utf-8", "replace")
    sections: dict[str, list[str]] = defaultdict(list)
    heading = ""
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][A-Z ]+", line.rstrip()):
            heading = line.strip()
        elif line.startswith(" "):
            sections[heading].append(line.strip())
    name = " ".join(" ".join(sections["NAME"]).split())
    parts = re.split(" [-\N{EN DASH}\N{HYPHEN}\N{MINUS SIGN}] ", name)
    return parts[-1] if len(parts) > 1 else "", " ".join(sections["DESCRIPTION"])


if __name__ == "__main__":
    main()
