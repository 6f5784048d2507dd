"""How long the steps that are left will take, from the steps that have been measured: this run's, and those that were
computed before.
"""

from midmask.experiment.step import Step
from midmask.experiment.steps import FinetuneConfig, PretrainConfig, TrainingConfig


class StepTimes:
    """Seconds per unit of work by kind of step. A unit is a row that is trained on, and for other steps the step."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, ...], float] = {}
        self._work: dict[tuple[str, ...], float] = {}

    def add(self, step: Step, seconds: float) -> None:
        for kind in _kinds(step):
            self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds
            self._work[kind] = self._work.get(kind, 0.0) + work(step)

    def of(self, step: Step) -> float | None:
        """Seconds that the step will take, from the most similar steps; none if no step of its name was measured."""
        for kind in _kinds(step):
            if kind in self._work:
                return self._seconds[kind] / self._work[kind] * work(step)
        return None

    def weight(self, step: Step) -> float:
        """The same, or a guess."""
        known = self.of(step)
        return step.kind.nominal_seconds if known is None else known


def work(step: Step) -> float:
    """Rows that a training reads; 1 for any other step."""
    if isinstance(step.config, TrainingConfig):
        return float(step.optimiser_steps * step.config.train.batch_size)
    return 1.0


def _kinds(step: Step) -> list[tuple[str, ...]]:
    """From the most to the least similar: same method and representation, same name."""
    config = step.config
    if isinstance(config, PretrainConfig):
        return [(step.name, config.objective.name), (step.name,)]
    if isinstance(config, FinetuneConfig):
        return [(step.name, config.loss.name, config.representation.label, str(config.per_query)), (step.name,)]
    encoder = step.inputs.get("model")
    if encoder is not None and isinstance(encoder.config, FinetuneConfig):
        return [(step.name, getattr(config, "side", ""), encoder.config.representation.label), (step.name,)]
    return [(step.name,)]
