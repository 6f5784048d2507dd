"""Whole sweeps in one process, without Ray: trials, study, conclusion, its data and its words, on real artifacts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch

from midmask.artifact import Place
from midmask.cluster.comparison import SPLITS, Scored, evaluation
from midmask.cluster.conclusion import Conclusion
from midmask.cluster.flags import parse
from midmask.cluster.importance import importance
from midmask.cluster.job import resolve
from midmask.cluster.study import open_study, outcomes, remaining, suggest
from midmask.cluster.summary import summary
from midmask.cluster.sweep import _entrants
from midmask.cluster.sweep_plan import Sweep, sweep_for
from midmask.cluster.trial import Context, run_trial
from midmask.cluster.trials import Trials
from midmask.recipes.plan import contents_of, plan
from midmask.recipes.run import Runner, Silent
from midmask.recipes.space import Space
from midmask.steps import LOCAL
from tests.benchmark.tiny import write_collection

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


class Here:
    """Where trials of this process push their rows to."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def push(self, source: str, rows: list[dict[str, Any]]) -> None:
        self.rows += rows


def swept(folder: Path, fields: dict[str, Any]) -> tuple[Sweep, Conclusion, Here]:
    """All trials of a grid, one after the other, and the comparison."""
    torch.set_num_threads(1)
    given = ["--corpus", write_collection(folder / "words"), "--storage", str(folder / "store")]
    options = resolve(parse([*given, "--tracking-uri", f"sqlite:///{folder}/mlflow.db"], None))
    one, storage, heard = sweep_for(options, Space.model_validate({**fields, **SHORT})), Place(options.storage), Here()
    space, contents, recipe = one.space, contents_of(one.recipe), one.recipe
    study = open_study(optuna.storages.InMemoryStorage(), "s", space)
    for point in remaining(study, space).points:
        study.enqueue_trial(point)
        trial, told = study.ask(), []
        context = Context(recipe.model_dump(mode="json"), contents, space, storage, heard)  # type: ignore[arg-type]
        run_trial(suggest(space, trial), context, told.append)
        for row in told[:-1]:
            trial.report(row["objective0"], row["rung"])
        study.tell(trial, [told[-1][f"objective{number}"] for number in range(len(space.targets))])
    trials = Trials(space, recipe, contents, storage, outcomes(study, space))
    runner = Runner(storage, LOCAL, Silent())
    scored = [
        Scored(entrant, seed, {split: runner.run(evaluation(entrant.recipe.seeded(seed), split)) for split in SPLITS})
        for seed in space.seeds
        for entrant in _entrants(one, trials)
    ]
    configs = {split: recipe.evaluation.model_copy(update={"split": split}) for split in SPLITS}
    bm25 = {split: runner.run(plan(recipe, contents).bm25_evaluation(config)) for split, config in configs.items()}
    return one, Conclusion(trials, scored, bm25, importance(study, space)), heard


def records(sweep: Sweep, step: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in Path(sweep.options.storage, step).glob("*/record.json")]


def test_a_conditional_space_with_repeated_seeds(tmp_path: Path) -> None:
    one, end, heard = swept(tmp_path, DEPTH)
    told = json.loads(json.dumps(summary(end, study=one.study, sweep=one.fingerprint), allow_nan=False))
    assert [point["brief"] for point in told["points"]] == ["enhanced", "basic/1", "basic/2"]
    highest = max(point["values"]["nDCG@10"] for point in told["points"])
    for point in told["points"]:
        assert len(point["seeds"]) == 2 and np.mean(point["seeds"]) == pytest.approx(point["values"]["nDCG@10"])
        assert len(point["probes"]) == 1 and point["complete"]
        assert (point["to_best"] is None) == (point["label"] == told["best"])
        assert point["front"] == (point["values"]["nDCG@10"] == highest), "equals of the best are on the front too"
    spread = np.sqrt(np.mean([np.var(point["seeds"], ddof=1) for point in told["points"]]))
    assert told["noise_floor"]["seed_spread"] == pytest.approx(spread) and told["noise_floor"]["seed_degrees"] == 3
    assert [row["number"] for row in heard.rows if row["event"] == "rung"] == [1, 2] * 3
    out = end.text()
    for words in ("The probe at 0.5 of the pre-training", "distinguishable from", "only 12 dev queries", "at least 10"):
        assert words in out
    assert [system["label"] for system in told["systems"]][1:] == ["none"] and len(told["systems"][0]["test"]) == 2


def test_words_are_cut_without_training_and_weighed_against_bytes(tmp_path: Path) -> None:
    one, end, _ = swept(tmp_path, SIZE)
    told = json.loads(json.dumps(summary(end, study=one.study, sweep=one.fingerprint), allow_nan=False))
    assert len(records(one, "pretrain")) == 1, "one middle training for all"
    first = [record for record in records(one, "finetune") if record["config"]["train"]["seed"] == 0]
    assert len(first) == 3 + 1, "one fine-tuning a width, [CLS] alone, the baseline; none for N"

    assert len(told["points"]) == 7
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
    assert {"CLS", "8+4", "none"} <= {system["label"] for system in told["systems"]}
    out = end.text()
    assert "points are on the front of nDCG@10 and bytes_per_passage" in out and "bytes a passage" in out
    assert "search_ms_per_query" in out and "probe at" not in out
