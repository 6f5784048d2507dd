"""A BEIR folder whose test split keeps the queries of half of its articles: a last split, which one page alone reads.

    python -m tests.tools.last_split ../shared/data/squad squad-last

An article is the title of the relevant passage; the half with the higher hashes of their titles is kept. The other
files are links.
"""

import argparse
import gzip
import json
from pathlib import Path

from midmask.core.randomness import hash64


def keep_half(source: Path, out: Path) -> tuple[int, int]:
    """Writes the folder; returns how many articles and how many judgements its test split has."""
    (out / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl.gz", "queries.jsonl.gz", "qrels/train.tsv", "qrels/dev.tsv"):
        (out / name).symlink_to((source / name).resolve())
    with gzip.open(source / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        title_of = {row["_id"]: row["title"] for row in map(json.loads, lines)}
    header, *judgements = (source / "qrels" / "test.tsv").read_text("utf-8").splitlines()
    titles = sorted({title_of[line.split("\t")[1]] for line in judgements})
    by_hash = sorted(zip(hash64(titles, "last split").tolist(), titles, strict=True))
    last = {title for _, title in by_hash[len(by_hash) // 2 :]}
    kept = [line for line in judgements if title_of[line.split("\t")[1]] in last]
    (out / "qrels" / "test.tsv").write_text("\n".join([header, *kept]) + "\n", "utf-8")
    return len(last), len(kept)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "out"):
        parser.add_argument(name, type=Path)
    flags = parser.parse_args()
    print("{:,} articles, {:,} judgements".format(*keep_half(flags.source, flags.out)))
