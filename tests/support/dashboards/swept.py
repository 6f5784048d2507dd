"""A finished sweep over a width and a number of words, for two objectives, as data."""

import json
from itertools import product
from typing import Any

from midmask.tracking.names import collection_key, metric_key, queries_key
from midmask.tracking.runs import Tracker
from tests.support.dashboards.tracked import COLLECTIONS, QUERIES, tags

WIDTH, WORDS, VIEW = "representation.width", "evaluation.passage_terms", "representation.lexical"
NOISE = 0.02


def value(width: int | None, words: int | None) -> float:
    """nDCG@10 of a point; a model without words is worse than any with them."""
    return 0.4 if words is None else round(0.45 + 0.0005 * (width or 0) + 0.0004 * words, 6)


def size(width: int | None, words: int | None) -> float:
    return 4.0 * (width or 128) + 5.375 * (words or 0)


POINTS: list[tuple[int | None, int | None]] = [*product((16, 32, 64), (16, 32, 64, 128)), (None, None)]
BEST = (64, 128)


def difference(value: float, p: float, outcome: str, queries: int) -> dict[str, Any]:
    shape = {"difference": value, "low": value - 0.03, "high": value + 0.03}
    return {**shape, "p": p, "outcome": outcome, "queries": queries}


TO_FLOOR = {"dev": difference(-0.02, 0.057, "equal", 61), "test": difference(-0.0885, 1.3e-05, "worse", 93)}
SYSTEMS = [
    {"label": "dupmae 64/128", "dev": [0.52, 0.53], "test": [0.43, 0.44], "to_floor": TO_FLOOR},
    {"label": "none", "dev": [0.545], "test": [0.5235], "to_floor": {}},
]
"""The best on dev is within the noise there, and loses on test."""


def told(points: list[tuple[int | None, int | None]] = POINTS) -> dict[str, Any]:
    """The content of `sweep.json`; the points but the last two are on no front, and one more was pruned."""
    return {
        "format": 1, "name": "sparse_topn", "study": "sparse_topn-0", "fingerprint": "5eed", "recipe": "dupmae",
        "corpus": "pydocs", "search": "grid", "systems": SYSTEMS, "floor": "none",
        "objectives": [{"measure": "nDCG@10", "mode": "max"}, {"measure": "bytes_per_passage", "mode": "min"}],
        "parameters": [
            parameter(VIEW, "words from"), parameter(WIDTH, "CLS width"), parameter(WORDS, "N"),
        ],
        "points": [point(*one) for one in points] + [pruned()], "best": label(*BEST),
        "noise_floor": {"value": NOISE, "seed_spread": 0.004, "seed_degrees": 6},
        "sentences": ["64/128 is <best>; it is *not* distinguishable from 64/64 on dev (p = 0.2)."],
    }  # fmt: skip


def parameter(path: str, name: str) -> dict[str, Any]:
    return {"path": path, "label": name, "log": name == "N", "constant": False}


def label(width: int | None, words: int | None) -> str:
    return "words from=none" if words is None else f"words from=logits CLS width={width} N={words}"


def point(width: int | None, words: int | None) -> dict[str, Any]:
    mean, here = value(width, words), {VIEW: "logits", WIDTH: width, WORDS: words}
    gap = mean - value(*BEST)
    standing = {"difference": gap, "p_corrected": 0.2, "detectable": NOISE, "distinguishable": gap < -NOISE}
    others = [(value(*other), size(*other)) for other in POINTS]
    beaten = any(a >= mean and b <= size(width, words) and (a, b) != (mean, size(width, words)) for a, b in others)
    mark, costs = {None: "CLS:128", (64, 64): "64+64"}, {"bytes_per_passage": size(width, words)}
    return {
        "label": label(width, words), "mark": mark.get(words and (width, words)),
        "parameters": {VIEW: None} if words is None else here, "run": f"t-{width}-{words}", "complete": True,
        "probes": [], "values": {"nDCG@10": mean, **costs}, "measures": {"nDCG@10": mean}, "costs": costs,
        "front": not beaten,
        "to_best": None if (width, words) == BEST else standing,
    }  # fmt: skip


def pruned() -> dict[str, Any]:
    found = {**point(16, 16), "label": "pruned", "run": "t-pruned", "complete": False, "values": {}, "measures": {}}
    return {**found, "costs": {}, "front": False, "to_best": None, "probes": [0.1]}


def track(tracker: Tracker) -> str:
    """The sweep's parent run with its file, a trial for its best point, and trials that were pruned, failed, and run
    still; the parent's id.
    """
    parent = tracker.run("sweep_sparse_topn", tags=tags("sweep", "dupmae", "5eed-topn"), params={})
    with tracker.run("trial", tags=tags("trial", "dupmae", "t-64-128"), params={}, parent=parent.id) as trial:
        trial.log({metric_key("pydocs", "dev", "nDCG@10"): value(*BEST)}, 0)
        trial.tag({collection_key("pydocs"): COLLECTIONS["pydocs"], queries_key("pydocs", "dev"): str(QUERIES["dev"])})
    for name, status in (("t-pruned", "pruned"), ("t-failed", "failed")):
        tracker.run(f"trial {name}", tags=tags("trial", "dupmae", name), params={}, parent=parent.id).finish(status)
    tracker.run("trial t-running", tags=tags("trial", "dupmae", "t-running"), params={}, parent=parent.id)
    parent.log_text(json.dumps(told()), "sweep.json")
    parent.finish()
    return parent.id
