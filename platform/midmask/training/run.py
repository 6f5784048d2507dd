"""One training run from setup to artifact: on one process by itself, or as one of the workers that Ray Train starts.

Called again after a kill, with the same setup and place, it goes on from the newest checkpoint and ends with the same
files:

    model/                the encoder (pre-training: a masked LM; fine-tuning: a bi-encoder; teaching: a classifier;
                          a generator of queries: an encoder-decoder), and in heads.safetensors the objective's
                          own weights, if it has any
    checkpoint/           state after the last step, for a longer run of the same plan to go on from
    trace.parquet         every step: losses, what was read, how long it took
"""

import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from midmask.errors import UserError
from midmask.objectives import Objective
from midmask.objectives import distributed as world
from midmask.store.place import Place
from midmask.training import checkpoint
from midmask.training.batches import StepBatches, batches_ahead
from midmask.training.checkpoint import save_heads, take_heads
from midmask.training.examples import StepReader, WorkerSteps, plan_of
from midmask.training.health import HealthWatch, examine
from midmask.training.loop import optimise, prepare_model, to_device
from midmask.training.optimiser import build_optimiser
from midmask.training.plan import BatchPlan
from midmask.training.rehearsal import fit_micro_batch
from midmask.training.setup import PretrainSetup, TrainingSetup
from midmask.training.trace import Trace, trace_summary, trace_totals

logger = logging.getLogger(__name__)

Log = Callable[[int, dict[str, float]], None]
"""(training step, values by name): what a running step reports; of several workers, rank 0 alone. Without values it
tells only how far the training is."""

TELLS_EVERY_S = 10.0
"""Seconds between two reports of a training whose steps are slow: it tells how far it is before losses are due, first
after its first step."""


PATIENCE = 100
"""First steps of a training of which one must have a gradient."""


class NonFiniteLoss(RuntimeError):
    """A loss or gradient that is not a number; trying again would give it again."""


def run_training(
    setup: TrainingSetup, out: Place, reader: StepReader, log: Log, *, device: torch.device | None = None
) -> dict[str, Any]:
    """Trains up to `setup.stop` steps and writes the artifact's files.

    Returns:
        On rank 0: steps, loss and parts (means over the last 20 steps), tokens, seconds (over all restarts),
        data_wait_share, heads_taken and heads_fresh (tensors; pre-training), rows_left_out (an epoch), threads,
        device. On other ranks: nothing.

    Raises:
        NonFiniteLoss: naming the step and the last good checkpoint.
        UserError: if none of the first steps had a gradient.
    """
    here = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return _Run(setup, out, here).go(reader, log)


class _Run:
    """The parts of one run on one worker."""

    def __init__(self, setup: TrainingSetup, out: Place, device: torch.device) -> None:
        config = setup.train
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        if config.batch_size < world.size():
            raise UserError(
                f"{setup.path}.batch_size = {config.batch_size}: {world.size()} workers need at least a row each; set "
                f"{setup.path}.batch_size={world.size()} or more, or give --workers-per-training {config.batch_size}"
            )
        self.setup, self.out, self.device, self.config = setup, out, device, config
        self.pretraining = setup if isinstance(setup, PretrainSetup) else None
        self.resume = self.pretraining.resume if self.pretraining else None  # an artifact of the run's first steps
        self.examples = setup.rows
        self.plan: BatchPlan = plan_of(self.examples, config.batch_size, config.seed)
        _, objective, self.vocabulary = setup.build()
        self.heads = take_heads(objective, setup)
        self.objective: Objective = objective.to(device).train()
        self.optimiser = build_optimiser(self.objective, config)
        micro_batch = fit_micro_batch(self.objective, setup, self.vocabulary, device)
        self.config = config.model_copy(update={"micro_batch": micro_batch})
        self.model = prepare_model(self.objective)
        self.trace = Trace(out, objective.parts, self.plan, writes=world.rank() == 0)
        self.checkpoints = out / "checkpoints"
        self.good: Place | None = None
        self.window: list[dict[str, Any]] = []
        self.watch = HealthWatch(config.steps)
        self.idle = 0  # steps without a gradient, from the first one on

    def go(self, reader: StepReader, log: Log) -> dict[str, Any]:
        done = self._load_newest()
        self.trace.begin(done)
        worker = WorkerSteps(
            self.examples, self.config.batch_size, self.config.seed, world.rank(), world.size(), done, self.setup.stop
        )
        if done < self.setup.stop:
            work = batches_ahead(
                reader,
                worker,
                steps=self.config.steps,
                pad_id=self.vocabulary.pad_id,
                micro_batch=self.config.micro_batch,
                pin=self.device.type == "cuda",
            )
            self._train(work, log)
        return self._finish() if world.rank() == 0 else {}

    def _train(self, work: Iterator[StepBatches], log: Log) -> None:
        mine, reported_at = self._remember(work), -math.inf
        for record in optimise(self.model, self.objective, self.optimiser, self.config, mine, self.device):
            self.trace.add(record)
            done = record.step + 1
            last = done == self.setup.stop
            saves = last or done % self.config.checkpoint_every == 0
            reports = last or done % self.config.log_every == 0
            health = self._measure_health(done)
            if saves or reports or health or done == PATIENCE:
                self._read_back_and_check()
            values: dict[str, float] = {}
            if reports or health:
                window, self.window = self.window, []
                values = {**trace_summary(window), **health}
            if saves and self.idle < done:  # before the report, which may stop the training
                self._save(done)
            if world.rank() == 0 and (values or time.monotonic() - reported_at >= TELLS_EVERY_S):
                reported_at = time.monotonic()
                log(done, values)

    def _remember(self, work: Iterator[StepBatches]) -> Iterator[StepBatches]:
        for self.batches in work:
            yield self.batches

    def _measure_health(self, done: int) -> dict[str, float]:
        """The encoder's health after this step, on rank 0, if a measurement is due."""
        interval = self.config.health_every
        if self.pretraining is None or world.rank() != 0 or not interval or done % interval:
            return {}
        values = examine(self.objective, to_device(self.batches.micro[0], self.device))
        self.watch.look(done, values)
        return {f"health/{name}": value for name, value in values.items()}

    def _load_newest(self) -> int:
        """Loads the newest state there is; the number of steps it has behind it."""
        final = [place / "checkpoint" for place in (self.out, self.resume) if place is not None]
        ready = [place for place in final if (place / checkpoint.POSITION).exists()]
        self.good = next(iter([*filter(None, [checkpoint.newest(self.checkpoints)]), *ready]), None)
        if self.good is None:
            if self.heads["heads_taken"] and world.rank() == 0:
                logger.info("heads: %(heads_taken)d tensors taken over, %(heads_fresh)d fresh", self.heads)
            return 0
        position = checkpoint.load(self.good, self.objective, self.optimiser)
        if position["plan"] != self.plan.fingerprint:
            raise UserError(
                f"{self.good} belongs to another run (corpus, seed or batch size differ); name another folder"
            )
        if position["step"] > self.setup.stop:
            raise UserError(f"{self.good} is at step {position['step']}, beyond the last step {self.setup.stop}")
        return int(position["step"])

    def _read_back_and_check(self) -> None:
        """Reads the steps' numbers off the device; stops at one that is not finite, or where none had a gradient."""
        for row in self.trace.settle():
            self.window.append(row)
            bad = [name for name in row if isinstance(row[name], float) and not math.isfinite(row[name])]
            if bad:
                raise NonFiniteLoss(
                    f"step {row['step']}: {', '.join(bad)} not finite; last good checkpoint: "
                    f"{self.good or 'none yet'}. Try a smaller {self.setup.path}.learning_rate."
                )
            if row["step"] == self.idle and not row["gradient_norm"]:
                self.idle += 1
        if self.idle >= min(PATIENCE, self.setup.stop):
            hides = hasattr(self.setup.objective, "encoder_mask_ratio")
            remedy = ", or hide more of them: set objective.encoder_mask_ratio=0.15 or more" if hides else ""
            raise UserError(
                f"{self.setup.path}: none of the first {self.idle} steps had a gradient ({self.setup.objective.name}), "
                f"so nothing is learned: no text has a token to predict, or the loss is the same whatever the weights "
                f"are; give longer texts{remedy}"
            )

    def _save(self, done: int) -> None:
        """A checkpoint by rank 0, after the trace of the steps before it."""
        place = self.checkpoints / checkpoint.step_name(done)
        if world.rank() == 0:
            self.trace.flush()
            checkpoint.save(place, self.objective, self.optimiser, self._position(done))
            checkpoint.prune(self.checkpoints)
        self.good = place

    def _position(self, done: int) -> dict[str, Any]:
        return {
            "step": done,
            "epoch": self.plan.epoch_of(done),
            "seed": self.config.seed,
            "plan": self.plan.fingerprint,
            "workers": world.size(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    def _finish(self) -> dict[str, Any]:
        """Writes the artifact's files, each whole, so that it can be done again; deletes what only served the run."""
        with tempfile.TemporaryDirectory() as name:
            self.setup.save(self.objective, Path(name))
            save_heads(self.objective, self.setup.objective.name, Path(name))
            (self.out / "model").upload(Path(name))
        if self.pretraining:
            checkpoint.save(self.out / "checkpoint", self.objective, self.optimiser, self._position(self.setup.stop))
        before = self.resume / "trace.parquet" if self.resume else None
        trace = self.trace.finish(self.out, self.setup.stop, before)
        self.checkpoints.delete()
        (self.out / "trace").delete()
        return {
            **trace_totals(trace),
            **(self.heads if self.pretraining else {}),
            "collapses": self.watch.collapses,
            "rows_left_out": self.plan.left_out,
            "workers": world.size(),
            "threads": torch.get_num_threads(),
            "device": self.device.type,
        }
