"""Two search spaces in miniature, and what the data of a finished sweep of each must hold, wherever it ran."""

from typing import Any

import numpy as np
import pytest

SHORT = {
    "settings": {
        "tokens.vocabulary_size": 300, "pretrain.steps": 4, "pretrain.batch_size": 8,
        "stages.0.train.steps": 3, "stages.0.train.batch_size": 4,
    },
    "baselines": ["none"], "seeds": [0, 1],
}  # fmt: skip
DEPTH = {
    "name": "depth", "recipe": "retromae", "trial_seeds": [0, 1],
    "rungs": {"shares": [0.5], "steps": 2, "prune": False},
    "parameters": {
        "objective.decoding": {"values": ["enhanced", "basic"]},
        "objective.decoder_layers": {"values": [1, 2], "when": {"objective.decoding": "basic"}},
    },
}  # fmt: skip
WORDS = {"representation.lexical": "logits"}
SIZE = {
    "name": "size", "recipe": "dupmae", "protocol": "in_batch",
    "objectives": [{"measure": "nDCG@10", "mode": "max"}, {"measure": "bytes_per_passage", "mode": "min"}],
    "parameters": {
        "representation.lexical": {"values": ["logits", None]},
        "representation.passage_terms": {"values": [16], "when": WORDS},
        "evaluation.passage_terms": {"values": [2, 4, 16], "when": WORDS, "label": "N"},
        "representation.width": {"values": [8, 16], "when": WORDS},
    },
    "marks": {
        "CLS": {"representation.lexical": None},
        "8+4": {"representation.width": 8, "evaluation.passage_terms": 4},
    },
}  # fmt: skip


def check_repeated_seeds(told: dict[str, Any]) -> None:
    """Of DEPTH: every point has two seeds and a probe, and the seeds' spread is that of all points."""
    for point in told["points"]:
        assert len(point["seeds"]) == 2 and np.mean(point["seeds"]) == pytest.approx(point["values"]["nDCG@10"])
        assert len(point["probes"]) == 1 and point["complete"]
    spread = np.sqrt(np.mean([np.var(point["seeds"], ddof=1) for point in told["points"]]))
    assert told["noise_floor"]["seed_spread"] == pytest.approx(spread) and told["noise_floor"]["seed_degrees"] == 3


def check_words_and_bytes(told: dict[str, Any]) -> None:
    """Of SIZE: the front by comparing every pair, the bytes of so many words, a time a query."""
    values = [(point["values"]["nDCG@10"], point["values"]["bytes_per_passage"]) for point in told["points"]]
    beaten = [any(a >= x and b <= y and (a, b) != (x, y) for a, b in values) for x, y in values]
    assert [point["front"] for point in told["points"]] == [not one for one in beaten]
    sizes = {
        point["parameters"]["evaluation.passage_terms"]: point["costs"]["bytes_per_passage"]
        for point in told["points"]
        if point["parameters"].get("representation.width") == 8
    }
    for words, size in sizes.items():  # 32 bits and an index a word, of a vocabulary of 300 at most; two headers
        assert 4 * 8 + words * 4 < size < 4 * 8 + words * (32 + 9) / 8 + (128 + 64) / 48 + 1
    assert all(point["costs"]["search_ms_per_query"] > 0 for point in told["points"])
