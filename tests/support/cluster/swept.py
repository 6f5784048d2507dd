"""Data of sweeps that never ran, in the shape of `sweep.json`, with a known answer."""

import itertools
from typing import Any


def parameter(path: str, values: list[Any], **fields: Any) -> dict[str, Any]:
    own = {"path": path, "label": path.rsplit(".", 1)[-1], "values": values, "low": None, "high": None, "log": False}
    return {**own, "when": {}, "constant": len(values) == 1, **fields}


def point(label: str, parameters: dict[str, Any], value: float, **fields: Any) -> dict[str, Any]:
    standing = {"difference": 0.0, "p": 0.5, "p_corrected": 0.5, "detectable": 0.02, "distinguishable": value < 0.12}
    return {
        "label": label, "brief": "/".join(map(str, parameters.values())), "mark": None, "parameters": parameters,
        "run": "", "complete": True, "probes": [], "values": {"nDCG@10": value}, "measures": {"nDCG@10": value},
        "costs": {}, "seeds": [value - 0.01, value + 0.01], "front": False, "to_best": standing, **fields,
    }  # fmt: skip


def decoder() -> dict[str, Any]:
    """Enhanced, and basic with one to three layers, at three ratios; the best is enhanced at 0.5, with 0.15."""
    values = {("enhanced", None): (0.12, 0.15, 0.14), ("basic", 1): (0.1, 0.11, 0.13), ("basic", 2): (0.08, 0.1, 0.12)}
    points = []
    for (decoding, layers), own in values.items():
        for ratio, value in zip((0.15, 0.5, 0.7), own, strict=True):
            parameters = {"o.decoding": decoding, "o.layers": layers, "o.ratio": ratio}
            kept = {path: one for path, one in parameters.items() if one is not None}
            points.append(point(str(kept), kept, value))
    best = max(points, key=lambda one: one["values"]["nDCG@10"])
    best |= {"to_best": None, "front": True}
    pruned = {"o.decoding": "basic", "o.layers": 3, "o.ratio": 0.5}
    points.append(point("pruned", pruned, 0.9, complete=False, values={}))
    return {
        "format": 1, "name": "decoder_depth", "study": "s", "fingerprint": "f", "recipe": "retromae",
        "corpus": "pydocs", "split": "dev", "search": "grid",
        "objectives": [{"measure": "nDCG@10", "mode": "max"}],
        "parameters": [
            parameter("o.decoding", ["enhanced", "basic"]),
            parameter("o.layers", [1, 2, 3], when={"o.decoding": ["basic"]}),
            parameter("o.ratio", [0.15, 0.5, 0.7]),
        ],
        "points": points, "best": best["label"],
        "noise_floor": {"value": 0.02, "seed_spread": 0.01, "seed_degrees": 6, "repeats": 1},
        "importance": {
            "evaluator": "PED-ANOVA", "trials": 9, "quantile": 0.5, "shares": {"o.ratio": 0.7, "o.decoding": 0.3},
        },
        "systems": [
            {"label": "retromae 0.5", "dev": [0.15], "test": [0.14]},
            {"label": "none", "dev": [0.1, 0.12], "test": [0.1]},
        ],
        "sentences": [],
    }  # fmt: skip


def sizes() -> dict[str, Any]:
    """Widths x words, and [CLS] alone; more bytes measure more, but for [CLS] alone, which is beaten."""
    points = []
    for width, words in itertools.product((16, 32, 64), (16, 47, 128)):
        size = 4.0 * width + words * 43 / 8
        parameters = {"r.lexical": "logits", "e.words": words, "r.width": width}
        mark = "64+47" if (width, words) == (64, 47) else None
        values = {"nDCG@10": 0.1 + size / 10_000, "bytes_per_passage": size}
        points.append(point(str(parameters), parameters, 0.1, values=values, mark=mark, front=True))
    values = {"nDCG@10": 0.12, "bytes_per_passage": 512.0}
    points.append(point("cls", {"r.lexical": None}, 0.12, values=values, mark="CLS:128"))
    best = max(points, key=lambda one: one["values"]["nDCG@10"])
    best |= {"to_best": None}
    objectives = [{"measure": "nDCG@10", "mode": "max"}, {"measure": "bytes_per_passage", "mode": "min"}]
    parameters = [
        parameter("r.lexical", ["logits", None]),
        parameter("e.words", [16, 47, 128], log=True, when={"r.lexical": ["logits"]}),
        parameter("r.width", [16, 32, 64], when={"r.lexical": ["logits"]}),
    ]
    told = {"name": "sparse_topn", "recipe": "dupmae", "objectives": objectives, "parameters": parameters}
    return {**decoder(), **told, "points": points, "best": best["label"], "importance": None}
