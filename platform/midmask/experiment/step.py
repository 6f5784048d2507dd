"""One step of an experiment: its config, its inputs and its fingerprint."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from midmask.artifact import RECORD, Place
from midmask.experiment.kinds import KINDS, StepKind
from midmask.experiment.steps import PretrainConfig, TrainingConfig
from midmask.identity import Config, fingerprint, identity_of, library_versions

FORMAT = 3
"""Raised when a step's files change their meaning, so that old artifacts are not taken for new ones."""


@dataclass(frozen=True)
class Step:
    """One node: the name of its kind, its config, its inputs, and what its config's paths held when the plan was made.

    `prepared` are inputs that follow from the config and the other inputs, such as BM25's index of the corpus.
    `resume` is a finished prefix of this very step, such as its first quarter. `path`: of a training, where the recipe
    has its length and batch (`stages.0.train`), for messages. These change no result, so they are not part of the
    identity.
    """

    name: str
    config: Config
    inputs: Mapping[str, "Step"] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    prepared: Mapping[str, "Step"] = field(default_factory=dict)
    resume: "Step | None" = None
    path: str = field(default="", compare=False)

    @property
    def kind(self) -> StepKind:
        return KINDS[self.name]

    @cached_property
    def identity(self) -> dict[str, Any]:
        return {
            "step": self.name,
            "format": FORMAT,
            "config": {} if self.kind.named_by_content else identity_of(self.config),
            "content": dict(self.content),
            "inputs": {name: step.fingerprint for name, step in self.inputs.items()},
            "libraries": library_versions(),
        }

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.identity)

    @property
    def optimiser_steps(self) -> int:
        """How many steps a training takes; 0 for every other step."""
        if isinstance(self.config, PretrainConfig):
            return self.config.stop_after or self.config.train.steps
        return self.config.train.steps if isinstance(self.config, TrainingConfig) else 0

    def place(self, storage: Place) -> Place:
        return storage / self.name / self.fingerprint

    def is_finished(self, storage: Place) -> bool:
        """Whether the step's artifact is in the storage."""
        return (self.place(storage) / RECORD).exists()

    def sources(self) -> dict[str, "Step"]:
        """Name -> step whose artifact this one reads: all inputs, and as `resume` the training that it continues."""
        return {**self.inputs, **self.prepared, **({"resume": self.resume} if self.resume else {})}

    def upstream(self) -> Iterator["Step"]:
        """Every step that this one needs, itself last, each once, in an order that can be run."""
        seen: set[str] = set()

        def walk(step: "Step") -> Iterator["Step"]:
            if step.fingerprint in seen:
                return
            seen.add(step.fingerprint)
            for source in step.sources().values():
                yield from walk(source)
            yield step

        yield from walk(self)
