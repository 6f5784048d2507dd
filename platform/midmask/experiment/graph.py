"""A step of an experiment (its config, inputs and fingerprint), and the graph of the steps that are unfinished.

A step that several experiments need is one node of the graph.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from midmask.core.config import Config, fingerprint, identity_of, library_versions
from midmask.experiment.kinds import KINDS, StepKind
from midmask.experiment.steps import PretrainConfig, TrainingConfig
from midmask.store.artifact import RECORD
from midmask.store.place import Place

FORMAT = 3
"""Raised when a step's files change their meaning, so that old artifacts are not taken for new ones."""


@dataclass(frozen=True)
class Step:
    """One node: the name of its kind, its config, its inputs, and what its config's paths held when the plan was made.

    `prepared`, `resume` and `path` change no result, so they are not part of the identity.
    """

    name: str
    config: Config
    inputs: Mapping[str, "Step"] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    # Inputs that follow from the config and the other inputs, such as BM25's index of the corpus
    prepared: Mapping[str, "Step"] = field(default_factory=dict)
    resume: "Step | None" = None  # a finished prefix of this very step, such as its first quarter
    path: str = field(default="", compare=False)  # where the recipe has a training's length and batch, for messages

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

    def upstream(self, *, resumed: bool = True) -> Iterator["Step"]:
        """Every step that this one needs, itself last, each once, in an order that can be run.

        Args:
            resumed: also the prefixes that trainings go on from.
        """
        seen: set[str] = set()

        def walk(step: "Step") -> Iterator["Step"]:
            if step.fingerprint in seen:
                return
            seen.add(step.fingerprint)
            for name, source in step.sources().items():
                if resumed or name != "resume":
                    yield from walk(source)
            yield step

        yield from walk(self)


def model_step(evaluation: Step) -> Step | None:
    """The step whose model was evaluated; None for BM25."""
    ranked = evaluation.inputs["ranked"]
    ranked = ranked.inputs["encoder"] if ranked.name == "fuse" else ranked
    return ranked.inputs["passages"].inputs["model"] if ranked.name == "search" else None


@dataclass
class Graph:
    """Which steps are unfinished, and which of them can start; all by fingerprint."""

    unfinished: dict[str, Step] = field(default_factory=dict)  # steps that have not ended
    waits_for: dict[str, set[str]] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=dict)  # what waits for each
    weight: dict[str, float] = field(default_factory=dict)  # length of its longest chain; long ones start first
    started: set[str] = field(default_factory=set)
    finished: dict[str, Step] = field(default_factory=dict)  # targets and inputs that need not be computed

    @staticmethod
    def of(targets: Iterable[Step], is_finished: Callable[[Step], bool], cost: Callable[[Step], float]) -> "Graph":
        """The graph of the unfinished steps that the targets need. Inputs of a finished step are not read.

        Args:
            cost: how long a step takes, in any unit.
        """
        graph = Graph()
        known: dict[str, bool] = {}

        def is_done(step: Step) -> bool:
            if step.fingerprint not in known:
                known[step.fingerprint] = is_finished(step)
                if known[step.fingerprint]:
                    graph.finished[step.fingerprint] = step
            return known[step.fingerprint]

        waiting = [step for step in targets if not is_done(step)]
        while waiting:
            step = waiting.pop()
            if step.fingerprint in graph.unfinished:
                continue
            lacking = [source for source in step.sources().values() if not is_done(source)]
            graph.unfinished[step.fingerprint] = step
            graph.waits_for[step.fingerprint] = {source.fingerprint for source in lacking}
            for source in lacking:
                graph.users.setdefault(source.fingerprint, set()).add(step.fingerprint)
            waiting += lacking
        for name in graph.unfinished:
            graph._weigh(name, cost)
        return graph

    @staticmethod
    def left_in(storage: Place, targets: Iterable[Step]) -> "Graph":
        """The graph of the steps that the targets need and a storage lacks."""
        return Graph.of(targets, lambda step: step.is_finished(storage), lambda step: step.kind.nominal_seconds)

    def _weigh(self, name: str, cost: Callable[[Step], float]) -> float:
        if name not in self.weight:
            after = max((self._weigh(user, cost) for user in self.users.get(name, ())), default=0.0)
            self.weight[name] = cost(self.unfinished[name]) + after
        return self.weight[name]

    def ready(self) -> list[Step]:
        """Steps whose inputs are all there and that have not been started, the longest chain first."""
        free = [name for name, lacking in self.waits_for.items() if not lacking and name not in self.started]
        return [self.unfinished[name] for name in sorted(free, key=lambda name: (-self.weight[name], name))]

    def start(self, step: Step) -> None:
        self.started.add(step.fingerprint)

    def end(self, step: Step) -> None:
        """Marks a step as finished."""
        self._drop(step.fingerprint)
        for user in self.users.get(step.fingerprint, ()):
            if user in self.waits_for:
                self.waits_for[user].discard(step.fingerprint)

    def fail(self, step: Step) -> list[Step]:
        """Removes a failed step and every step that depends on it; returns them."""
        lost, waiting = [], [step.fingerprint]
        while waiting:
            name = waiting.pop()
            if name in self.unfinished:
                lost.append(self.unfinished[name])
                self._drop(name)
                waiting += self.users.get(name, ())
        return lost

    def _drop(self, name: str) -> None:
        del self.unfinished[name], self.waits_for[name]
        self.started.discard(name)
