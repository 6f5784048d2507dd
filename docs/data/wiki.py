"""Passages of 60 to 150 words from Wikipedia's text, a collection for pre-training in BEIR's layout:

    python docs/data/wiki.py text/A[A-D]/wiki_* --apart-from data/squad --passages 113234 --out data/wiki

Files are WikiExtractor's, `<doc>` elements or a JSON object a line; all are held in memory. Articles are in random
order, the passages of an article together. Lists, indexes, years and disambiguation pages are left out.
"""

import argparse
import html
import itertools
import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

SEED = 20240607
LEAST, ENOUGH, MOST = 60, 110, 150  # words of a passage; from ENOUGH on it ends with its sentence
PROSE = 10  # words of a line; shorter ones are headings and list items
FEWEST, FIRST = 3, 8  # passages: an article with fewer is left out, of another one the first are taken
RUN = 8  # words in a row that no passage may share with a dev or test passage of --apart-from
DOC = re.compile(r'<doc id="(\d+)"[^\n]*? title="([^\n]*)">\n(.*?)</doc>', re.DOTALL)
NO_PROSE = re.compile(r"(Lists?|Index|Outline|Timeline|Glossary) of |(AD )?\d+s?( BC)?$|.*\(disambiguation\)$")
ABBREVIATED = r"(?<!\b\w\.)(?<!\b(?:Dr|Lt|Mr|Ms|Mt|No|St|ca|cf|fl|pp|vs)\.)(?<!\b(?:Col|Gen|Inc|Maj|Mrs|Rev)\.)"
# A quotation mark at the end of a sentence goes with the space: our passages have lost it, too.
SENTENCE_END = re.compile(rf'(?<=[.!?]){ABBREVIATED}"?\s+(?=["(]?[A-Z0-9])')
CLEANING = ((r"([(\[])[\s,;]+", r"\1"), (r"\(\s*\)|\[\s*\]", ""), (r"\s+([,;])", r"\1"), (r"\s+", " "))


def read_articles(path: Path) -> Iterator[tuple[str, str, str]]:
    """(page id, title, text) of each article of a file."""
    text = path.read_text("utf-8")
    if text.startswith("{"):
        yield from ((str(row["id"]), row["title"], row["text"]) for row in map(json.loads, text.splitlines()))
    else:
        yield from ((page, html.unescape(title), body) for page, title, body in DOC.findall(text))


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of the prose, cleaned; an empty one where headings or lists stand."""
    for line in filter(str.strip, text.splitlines()):
        line = html.unescape(line).strip()
        for pattern, replacement in CLEANING:
            line = re.sub(pattern, replacement, line)
        yield from SENTENCE_END.split(line) if len(line.split()) >= PROSE else [""]


def pack(sentences: Iterable[str]) -> Iterator[str]:
    """Passages of whole sentences, which end at an empty one if they are long enough; short remainders are dropped."""
    words: list[str] = []
    for sentence in (*sentences, ""):
        following = sentence.split()
        full = len(words) + len(following) > MOST
        if len(words) >= (LEAST if full or not following else ENOUGH):
            yield " ".join(words)
            words = []
        words = ([] if full else words) + (following if len(following) <= MOST else [])


def word_runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}


def read_held_out(folder: Path) -> tuple[set[str], set[tuple[str, ...]]]:
    """Titles and runs of words of the passages that the queries of dev and test are judged on."""
    files = [folder / "qrels" / f"{split}.tsv" for split in ("dev", "test")]
    judged = {line.split("\t")[1] for file in files for line in file.read_text("utf-8").splitlines()}
    rows = map(json.loads, (folder / "corpus.jsonl").read_text("utf-8").splitlines())
    held_out = [row for row in rows if row["_id"] in judged]
    return {row["title"] for row in held_out}, set().union(*(word_runs(row["text"]) for row in held_out))


def select(files: list[Path], apart_from: Path | None) -> Iterator[dict[str, str]]:
    """The passages as rows of corpus.jsonl."""
    titles, runs = read_held_out(apart_from) if apart_from else (set(), set())
    articles = [article for path in sorted(files) for article in read_articles(path)]
    random.Random(SEED).shuffle(articles)
    for page, title, text in articles:
        passages = [(f"w{page}-{k}", passage) for k, passage in enumerate(pack(split_sentences(text)))]
        if title in titles or NO_PROSE.match(title) or "may refer to:" in text[:300] or len(passages) < FEWEST:
            continue
        latin = [row for row in passages if 2 * len(re.findall(r"[A-Za-zÀ-ɏ]", row[1])) > len(row[1])]
        for name, passage in [row for row in latin if not runs & word_runs(row[1])][:FIRST]:
            yield {"_id": name, "title": title, "text": passage}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--apart-from", type=Path, metavar="FOLDER", help="of squad.py")
    parser.add_argument("--passages", type=int, metavar="N", help="the first N; default: all")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "corpus.jsonl").open("w", encoding="utf-8", newline="\n") as corpus:
        for row in itertools.islice(select(options.files, options.apart_from), options.passages):
            corpus.write(json.dumps(row, ensure_ascii=False) + "\n")
