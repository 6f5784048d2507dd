"""Named groups of BEIR's sets and their averages, which papers print as "BEIR".

beir18: all but MS MARCO (Thakur et al. 2021; RetroMAE, DupMAE). beir14: those that are free to download (CoT-MoTE).
beir13: beir14 without CQADupStack (SIGIR'23, SPLADE). CQADupStack's twelve forums are averaged first and count as one
set. Each set is evaluated on its official test queries.
"""

from collections.abc import Mapping

import numpy as np

from midmask.core.registry import Registry
from midmask.corpora.config import CorpusConfig
from midmask.errors import UserError
from midmask.store.place import Place

CQADUPSTACK = "cqadupstack"
FORUMS = tuple(
    f"{CQADUPSTACK}/{forum}"
    for forum in (
        *("android", "english", "gaming", "gis", "mathematica", "physics"),
        *("programmers", "stats", "tex", "unix", "webmasters", "wordpress"),
    )
)

BEIR13 = (
    *("trec-covid", "nfcorpus", "nq", "hotpotqa", "fiqa", "arguana", "webis-touche2020", "quora", "dbpedia-entity"),
    *("scidocs", "fever", "climate-fever", "scifact"),
)
BEIR14 = (*BEIR13, CQADUPSTACK)
BEIR18 = (*BEIR14, "bioasq", "signal1m", "trec-news", "robust04")

GROUPS: Registry[tuple[str, ...]] = Registry(
    "group of BEIR sets", {"beir13": BEIR13, "beir14": BEIR14, "beir18": BEIR18}
)

SPLIT = "test"
FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


def folders(group: str) -> tuple[str, ...]:
    """The folders of a group's sets, below the folder of all; names as BEIR's archives unpack."""
    return tuple(folder for name in GROUPS[group] for folder in (FORUMS if name == CQADUPSTACK else (name,)))


def group_corpora(group: str, place: str) -> dict[str, CorpusConfig]:
    """Maps each folder of the group to its corpus, in official splits.

    Raises:
        UserError: for an unknown group; or naming all that is missing below `place`, and how to lay it out.
    """
    root = Place(place)
    missing = {folder: lacking for folder in folders(group) if (lacking := _missing_files(root / folder))}
    if missing:
        listed = "; ".join(f"{folder}: {', '.join(lacking)}" for folder, lacking in missing.items())
        raise UserError(
            f"{group} in {place}: {len(missing)} of {len(folders(group))} folders lack files. Missing: {listed}. "
            f"Wanted layout: {place}/SET/ with corpus.jsonl[.gz], queries.jsonl[.gz] and qrels/test.tsv[.gz], SET as "
            "BEIR's archives name it, CQADupStack's forums as cqadupstack/FORUM; unpack each SET.zip there"
        )
    return {
        folder: CorpusConfig(name=f"beir:{place.rstrip('/')}/{folder}", splits="official") for folder in folders(group)
    }


def _missing_files(folder: Place) -> list[str]:
    if not folder.exists():
        return ["the folder"]
    return [name for name in FILES if not ((folder / name).exists() or (folder / f"{name}.gz").exists())]


def group_average(group: str, values: Mapping[str, float]) -> float:
    """The mean over the group's sets of one measure, CQADupStack being the mean of its forums.

    Args:
        values: folder (`scifact`, `cqadupstack/android`) -> value; folders outside the group are ignored.

    Raises:
        UserError: naming the sets without a value: an average of fewer sets is another figure.
    """
    absent = [folder for folder in folders(group) if folder not in values]
    if absent:
        raise UserError(f"{group}: no value for {', '.join(absent)}; an average of fewer sets is not comparable")
    forums = [values[folder] for folder in FORUMS] if CQADUPSTACK in GROUPS[group] else []
    means = {CQADUPSTACK: float(np.mean(forums))} if forums else {}
    return float(np.mean([means[name] if name in means else values[name] for name in GROUPS[group]]))
