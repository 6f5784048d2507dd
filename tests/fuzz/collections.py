"""Targets: a collection of every format, changed and prepared."""

import gzip
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.store.place import Place
from tests.fuzz.mutating import Files, mutate_files
from tests.fuzz.running import Case, Outcome
from tests.support.corpora import layouts
from tests.support.corpora.collections import write_beir, write_saved, write_saved_texts
from tests.support.corpora.documents import write_documents

LIMIT = 2_000
"""Characters of the longest passage, so that some are too long."""


Write = Callable[[Path], object]
SEEDS: dict[str, tuple[str, tuple[Write, ...]]] = {
    "beir": ("beir", (partial(write_beir, passages=20, queries=9),)),
    "beir, gz": ("beir", (partial(write_beir, passages=20, queries=9, packed=True),)),
    "beir, queries that are passages": ("beir", (layouts.write_arguana,)),
    "msmarco": ("msmarco", (layouts.write_msmarco, layouts.write_deep_learning)),
    "nq": ("nq", (layouts.write_nq,)),
    "nq, dpr json": ("nq", (partial(layouts.write_nq, form="json"), layouts.write_dpr_training)),
    "tripclick": ("tripclick", (layouts.write_tripclick,)),
    "hf": ("hf", (partial(write_saved, passages=20, queries=9),)),
    "hf, texts": ("hf", (write_saved_texts,)),
    "texts": ("texts", (layouts.write_texts,)),
    "docs": ("docs", (write_documents,)),
}
LINES = {"beir": "corpus.jsonl", "beir, gz": "corpus.jsonl", "msmarco": "collection.tsv", "texts": ""}
"""Targets whose documents are lines without a header -> what the names of their files begin with."""


def targets(root: Path) -> dict[str, Case]:
    """One a layout; the valid files are written below `root` once."""
    found: dict[str, Case] = {}
    for number, (name, (kind, writers)) in enumerate(SEEDS.items()):
        folder = root / f"corpus{number}"
        folder.mkdir()
        for write in writers:
            write(folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        found[name] = partial(_read, kind, LINES.get(name), files)
    return found


def _read(kind: str, documents: str | None, seeds: Files, rng: random.Random, folder: Path) -> Outcome:
    files = mutate_files(rng, seeds)
    for name, data in files.items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_bytes(data)
    drawn = {"bad_rows_threshold": rng.choice([1.0, 1.0, 1.0, 0.01]), "splits": rng.choice(["complete", "official"])}
    most = rng.choice([None, None, None, 7])
    config = CorpusConfig(name=f"{kind}:{folder}/in", max_characters=LIMIT, max_passages=most, **drawn)
    result = prepare(config, {}, Place(str(folder / "out")))
    bad, left_out = (sum(result[f"rows_{fate}"].values()) for fate in ("quarantined", "left_out"))
    assert result["rows_read"] == result["rows_kept"] + bad + left_out
    assert (folder / "out/quarantine.jsonl").read_bytes().count(b"\n") == bad, "quarantine and result disagree"
    if documents is not None:  # every line that is not blank was kept, quarantined, or left out by a rule; none twice
        own = [(name, data) for name, data in files.items() if name.startswith(documents) and "/" not in name]
        texts = [gzip.decompress(data) if name.endswith(".gz") else data for name, data in own]
        lines = sum(bool(line.strip()) for data in texts for line in data.split(b"\n"))
        counts = result["rows_by_kind"]["docs"]
        accounted = counts["kept"] + sum(counts["quarantined"].values()) + counts["left_out"]
        assert accounted == lines, f"{lines} lines, and {counts}"
    return "quarantined" if bad else "succeeded"
