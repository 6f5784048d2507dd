"""A tracked sweep, its winner and its baselines, written as jobs write them."""

from pathlib import Path

from midmask.tracking.names import collection_key, made_here_key, metric_key, queries_key
from midmask.tracking.runs import TrackedRun, Tracker
from midmask.tracking.store import Patience

QUICK = Patience(answer=30, close=30, flush=0.02)
RATIOS = [(encoder, decoder) for encoder in (0.15, 0.3, 0.5) for decoder in (0.5, 0.7, 0.9)]
DEV = {ratios: 0.50 + 0.01 * number for number, ratios in enumerate(RATIOS)}
"""nDCG@10 of each trial on dev."""

SYSTEMS = {
    ("RetroMAE", "retromae"): (0.6412, 0.6377),
    ("MLM", "mlm"): (0.6034, 0.5990),
    ("No middle training", "none"): (0.5410, 0.5388),
    ("BM25", "bm25"): (0.6120, 0.6455),
}
"""nDCG@10 on dev and on test."""

COLLECTIONS = {"pydocs": "3f2a90c1d2e3", "cranfield": "77aa00bb11cc"}
QUERIES = {"dev": 1204, "test": 1190}


def tags(step: str, objective: str, fingerprint: str, **more: str) -> dict[str, str]:
    named = {"job": "sweep_mask_ratio", "step": step, "objective": objective, "fingerprint": fingerprint}
    return {f"midmask.{name}": value for name, value in {**named, "corpus": "pydocs", **more}.items()}


def sweep(tracker: Tracker) -> str:
    """A sweep of nine trials, one of them pruned; its id."""
    parent = tracker.run("sweep_mask_ratio", tags=tags("sweep", "retromae", "5eed"), params={"search": "grid"})
    for number, (encoder, decoder) in enumerate(RATIOS):
        params = {"objective.encoder_mask_ratio": encoder, "objective.decoder_mask_ratio": decoder, "train.seed": 1}
        own = tags("trial", "retromae", f"7{number}")
        trial = tracker.run(f"trial {number}", tags=own, params=params, parent=parent.id)
        for rung in (1, 2, 4):
            trial.log({"probe/pydocs/dev/nDCG_at_10": DEV[encoder, decoder] * (0.8 + rung / 20)}, rung)
        if number:
            measured(trial, "pydocs", "dev", DEV[encoder, decoder])
        trial.finish("finished" if number else "pruned")
    parent.finish()
    return parent.id


def measured(run: TrackedRun, corpus: str, split: str, value: float) -> None:
    values = {"nDCG@10": value, "RR@10": value - 0.05, "R(rel=2)@100": value + 0.2}
    run.log({metric_key(corpus, split, name): number for name, number in values.items()}, 0)
    run.tag({collection_key(corpus): COLLECTIONS[corpus], queries_key(corpus, split): str(QUERIES[split])})


def systems(tracker: Tracker, parent: str) -> None:
    for (recipe, objective), (dev, test) in SYSTEMS.items():
        named = tags("evaluate", objective, f"e-{objective}", recipe=recipe)
        params = {"pretrain.seed": 0, "stages.0.train.seed": 3}
        with tracker.run(f"evaluate {recipe}", tags=named, params=params, parent=parent) as run:
            measured(run, "pydocs", "dev", dev)
            measured(run, "pydocs", "test", test)
            run.log({"train/loss": 1.0, "train/loss/encoder": 2.0}, 7)
    cranfield = tags("evaluate", "bm25", "e-cran", recipe="BM25") | {"midmask.corpus": "cranfield"}
    cranfield[made_here_key("cranfield", "dev")] = "true"
    with tracker.run("evaluate <b>BM25</b>", tags=cranfield, params={}) as run:
        measured(run, "cranfield", "dev", 0.3812)


def everything(uri: str, home: Path) -> str:
    """A sweep with systems, a cached second run of one of them, a failed and a running run; the sweep's id."""
    with Tracker(uri, home, QUICK) as tracker:
        parent = sweep(tracker)
        systems(tracker, parent)
        done = tracker.find("e-mlm", step="evaluate").finished
        assert done
        link = tags("evaluate", "mlm", "e-mlm", recipe="MLM")
        tracker.run("evaluate MLM", tags=link, params={}, cached_run=done)
        failed = tracker.run("pretrain broken", tags=tags("pretrain", "retromae", "bad"), params={})
        measured(failed, "pydocs", "dev", 0.99)
        failed.finish("failed")
        tracker.run("pretrain alive", tags=tags("pretrain", "retromae", "live"), params={})
    return parent
