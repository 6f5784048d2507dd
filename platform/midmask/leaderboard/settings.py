"""Settings as people say them: `mask 0.30 / 0.50`, `1,200 fine-tuning steps`, `BM25 share 0.9`."""

from collections.abc import Iterable

MASKS = ("encoder_mask_ratio", "decoder_mask_ratio")
"""Two ratios that are said together, the encoder's first."""

COUNTS = {"steps": "steps", "queries": "queries", "max_passages": "passages", "vocabulary_size": "words"}
"""Last part of a path -> what its number counts; the number stands first."""

NAMES = {
    "bm25_share": "BM25 share",
    "fusion": "BM25 fusion",
    "learning_rate": "learning rate",
    "max_length": "passage tokens",
    "query_length": "query tokens",
    "per_query": "negatives a query",
    "precision": "",
    "name": "",
}
"""Last part of a path -> its name; empty: the value says it all."""

UNSET = "null"
"""A value of none, as a run's params have it."""

PHASES = {"pretrain": "pre-training", "train": "fine-tuning", "teacher": "teacher", "mine": "mining"}
"""Part of a path -> the phase that a count or a rate belongs to."""


def said(settings: Iterable[tuple[str, str]]) -> list[str]:
    """Each of these settings (dotted path, value) in words, in the order of their paths; both mask ratios as one."""
    left = dict(sorted(settings))
    masks = [path for path in left if path.rpartition(".")[2] in MASKS]
    if len(masks) == len(MASKS):
        values = sorted(masks, key=lambda path: MASKS.index(path.rpartition(".")[2]))
        told = [f"mask {' / '.join(_ratio(left.pop(path)) for path in values)}"]
    else:
        told = []
    return [*told, *(_words(path, value) for path, value in left.items())]


def _words(path: str, value: str) -> str:
    *above, last = path.split(".")
    phase = next((PHASES[part] for part in reversed(above) if part in PHASES), "")
    stage = next((f"stage {int(part) + 1}" for part in above if part.isdigit() and part != "0"), "")
    if last in COUNTS:
        return _joined(_count(value), phase, COUNTS[last], stage)
    if last.endswith("mask_ratio"):
        return _joined(f"{last.removesuffix('_mask_ratio')} mask", _ratio(value))
    return _joined(phase, NAMES.get(last, last.replace("_", " ")), "none" if value == UNSET else value, stage)


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _ratio(value: str) -> str:
    """0.3 as 0.30: ratios are compared digit by digit."""
    try:
        return f"{float(value):.2f}" if float(value) == round(float(value), 2) else value
    except ValueError:
        return value


def _count(value: str) -> str:
    """A count that is not set limits nothing."""
    return f"{int(value):,}" if value.isdigit() else "all" if value == UNSET else value
