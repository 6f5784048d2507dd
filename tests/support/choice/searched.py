"""A verdict's folder with everything it names: a small BEIR collection, random encoders of each kind, and BM25."""

import json
from collections.abc import Mapping
from pathlib import Path

from midmask.choice.verdict import Calibration, QueryCounts, Recommendation, SystemEstimate, Verdict
from midmask.corpora.writer import write_beir
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from tests.support.corpora.layouts import read
from tests.support.retrieve.collection import REPRESENTATIONS, write_bi_encoder

HOSTILE = "<img src=x onerror=\"window.hacked = 'yes'\"> <script>window.hacked = 'yes'</script> **bold** $x$ :smile:"
"""A text that would run or be drawn, if a page took it for more than text."""

DOCUMENTS: Mapping[str, tuple[str, str]] = {
    "guide/install.md#0-95": ("Guide > Installing", "Install the server with one command, then start it on a port."),
    "guide/install.md#96-210": ("Guide > Installing > Linux", "On Linux the installed server runs as a service."),
    "guide/backup.md#0-140": ("Guide > Backups", "A backup copies the whole database to a disk every night."),
    "guide/backup.md#141-260": ("Guide > Backups > Restoring", "Restore a backup with the command restore and a date."),
    "faq.md#0-80": ("Questions", "Why does the server not start? The port is taken by another program."),
    "faq.md#81-200": ("Questions", "How do I change the port of the server? Edit the file of settings."),
    "notes/hostile.md#0-90": ("<b>Bold</b> title", f"A server with a hostile text: {HOSTILE}"),
    "notes/empty%20title.md": ("", "The database keeps a table of users and their passwords."),
}
QUERIES = {
    "made1": ("how do I restore a backup", "guide/backup.md#141-260"),
    "made2": ("change the port", "faq.md#81-200"),
    "made3": ("server runs as a service", "guide/install.md#96-210"),
}


def write_verdict(folder: Path, extra: int = 0) -> Path:
    """The folder, made by this call. Systems: retromae (dense, recommended), splade (lexical), dupmae (both, its list
    joined with BM25's), bm25 (the baseline), and one whose model is gone.

    Args:
        extra: passages of filler beside `DOCUMENTS`.
    """
    collection = write_collection(folder / "collection", extra)
    tokens = write_tokens(folder, collection)
    for kind, representation in REPRESENTATIONS.items():
        write_bi_encoder(Place(str(folder / "models" / kind)), tokens, representation)
    (folder / "verdict.json").write_text(verdict().as_json())
    return folder


def write_collection(folder: Path, extra: int = 0) -> Path:
    place = Place(str(folder))
    rows = (f"Row {row} of a table of users, disks and dates." for row in range(extra))
    filler = {f"filler/{row}.md#0-60": ("Filler", text) for row, text in enumerate(rows)}
    passages = ((name, title, text) for name, (title, text) in {**DOCUMENTS, **filler}.items())
    queries = ({"_id": name, "text": text} for name, (text, _) in QUERIES.items())
    write_beir(place, passages, queries, {"test": [(name, doc_id, 1) for name, (_, doc_id) in QUERIES.items()]})
    return folder


def write_tokens(folder: Path, collection: Path) -> Artifact:
    """The tokens that the random encoders are made for."""
    corpus = read(f"beir:{collection}", folder / "made" / "corpus")
    place = Place(str(folder / "made" / "tokens"))
    config = TokensConfig(vocabulary_size=300, max_length=32, query_length=12)
    return Artifact(place, {"fingerprint": "tokens", "result": tokenise(config, {"corpus": corpus}, place)})


def verdict(**changes: object) -> Verdict:
    systems = (
        system("retromae", "dense", 1, 0.71, 0.06, "models/dense/model"),
        system("splade", "lexical", 2, 0.68, 0.03, "models/lexical/model"),
        system("dupmae", "hybrid with BM25", 3, 0.66, 0.01, "models/hybrid/model"),
        system("bm25", "bm25", 4, 0.65, 0.0, ""),
        system("gone", "dense", 5, 0.5, -0.15, "models/gone"),
    )
    given: dict[str, object] = {
        "corpus": "docs:manuals", "passages": len(DOCUMENTS), "systems": systems, "baseline": "bm25",
        "queries": QueryCounts({"headings": 3}, 3, 3, 0, 0, 3), "calibration": Calibration(("squad",), 0.8, 0.9, 0.9),
        "recommendation": Recommendation("retromae", "dense", True, "It gains 0.06."), "measure": "nDCG@10",
        "model": "models/dense/model", "collection": "collection", "budget_seconds": 600.0, "spent_seconds": 300.0,
        "command": "midmask choose --corpus docs:manuals",
    }  # fmt: skip
    return Verdict(**{**given, **changes})  # type: ignore[arg-type]


def system(name: str, representation: str, rank: int, estimate: float, gain: float, model: str) -> SystemEstimate:
    ends = (estimate, estimate - 0.02, estimate + 0.02, gain, gain - 0.02, gain + 0.02)
    return SystemEstimate(name, representation, rank, *ends, 60, 3072, model, joined="BM25" in representation)


def rewrite(folder: Path, **changes: object) -> None:
    """Replaces fields of a verdict's file."""
    found = json.loads((folder / "verdict.json").read_text())
    (folder / "verdict.json").write_text(json.dumps({**found, **changes}))
