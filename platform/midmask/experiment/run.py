"""Runs steps in this process: inputs first, each once, nothing that is finished already.

Every result has `seconds`: what the step says of itself (a training adds up its steps, across kills), else the time
that its maker took.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from midmask.errors import UserError
from midmask.experiment.events import Begun, Ended, Failed, Logged, Observer, TimeIsUp, unobserved, until_time_is_up
from midmask.experiment.graph import Graph, Step
from midmask.experiment.steps import PretrainConfig
from midmask.store.artifact import Artifact, load, produce
from midmask.store.place import Place
from midmask.training.learnable import refuse_few_rows, refuse_unlearnable
from midmask.training.run import Log

PAIRS = ("tokens", "corpus")
"""Inputs of which the pairs of a query and a relevant passage are made."""

NO_ROWS = ("start", "resume")
"""Inputs of a training that have no rows of it."""


class Maker(Protocol):
    """Computes one step into `out` and returns its small results; safe to call again after a kill."""

    def __call__(self, config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]: ...


class Runner:
    """Computes steps into a storage with given makers, one after another in this process; reports to an observer."""

    def __init__(self, storage: Place, makers: Mapping[str, Maker], observer: Observer = unobserved) -> None:
        self.storage = storage
        self._makers = makers
        self._observer = observer
        self._learnable: set[str] = set()

    def compute(self, target: Step) -> Artifact:
        """The step's artifact, computed with all that it needs, only if it is not there; inputs of a finished step are
        not read.
        """
        graph = Graph.left_in(self.storage, [target])
        report_finished(graph.finished.values(), self.storage, self._observer)
        self.compute_until(graph, math.inf)
        return load(target.place(self.storage))

    def compute_until(
        self,
        graph: Graph,
        until: float,
        takes: Callable[[Step], bool] = lambda step: True,
        *,
        keep_going: bool = False,
    ) -> None:
        """Computes steps of a graph as long as there is time, and lets a training stop where it is when there is not.

        Args:
            until: of `time.monotonic`.
            takes: which steps are computed; the others, and what needs them, stay in the graph.
            keep_going: whether steps that need no failed one are still computed. Else the first failure is raised.
        """
        timed = Runner(self.storage, self._makers, until_time_is_up(self._observer, until))
        while time.monotonic() < until and (ready := list(filter(takes, graph.ready()))):
            try:
                timed.compute_next(graph, ready[0])
            except TimeIsUp:
                return
            except Exception:
                if not keep_going:
                    raise

    def compute_next(self, graph: Graph, step: Step) -> None:
        """Computes a ready step of a graph. A failure is reported, with all that is lost by it, and raised. Before a
        training, those that are to come are checked too.
        """
        if step.kind.trains:
            self.refuse_unlearnable(graph)
        graph.start(step)
        try:
            self.make(step)
        except Exception as error:
            self._observer(Failed(step, error, graph.fail(step)))
            raise
        graph.end(step)

    def refuse_unlearnable(self, graph: Graph, *, keep_going: bool = False) -> None:
        """Raises UserError for a training of the graph that would learn nothing, as far as the finished steps tell; it
        is reported as failed. Nothing is read of trainings that were checked before.

        Args:
            keep_going: all such trainings are reported, and none is raised.
        """
        for step in [*graph.unfinished.values()]:
            try:
                if step.fingerprint in graph.unfinished:  # else it is lost by another
                    self._check_learnable(step)
            except OSError:  # what cannot be read is reported by the step that needs it
                continue
            except UserError as error:
                self._observer(Failed(step, error, graph.fail(step)))
                if not keep_going:
                    raise

    def _check_learnable(self, step: Step) -> None:
        setup = step.kind.setup
        if setup is None or step.fingerprint in self._learnable:
            return
        needed = {name: source for name, source in step.inputs.items() if name not in NO_ROWS}
        finished = {name: source for name, source in needed.items() if source.is_finished(self.storage)}
        artifacts = {name: load(source.place(self.storage)) for name, source in finished.items()}
        if len(artifacts) == len(needed):
            refuse_unlearnable(setup(step.config, artifacts), step.path)
            self._learnable.add(step.fingerprint)
        # The inputs that are still to come add no rows
        elif artifacts.keys() >= set(PAIRS) and not isinstance(step.config, PretrainConfig):
            refuse_few_rows(setup(step.config, {name: artifacts[name] for name in PAIRS}), step.path)

    def make(self, step: Step) -> Artifact:
        """The artifact of one step, whose inputs are there."""
        inputs = {name: load(source.place(self.storage)) for name, source in step.sources().items()}
        self._observer(Begun(step))

        def fill(out: Place) -> dict[str, Any]:
            with contextlib.suppress(OSError):
                self._check_learnable(step)
            log: Log = lambda at, values: self._observer(Logged(step, at, values))  # noqa: E731
            began = time.perf_counter()
            result = self._makers[step.name](step.config, inputs, out, log=log)
            return {"seconds": round(time.perf_counter() - began, 3), **result}

        artifact = produce(step.place(self.storage), self._record(step, inputs), fill)
        self._observer(Ended(step, artifact))
        return artifact

    def _record(self, step: Step, inputs: Mapping[str, Artifact]) -> dict[str, Any]:
        return {
            "step": step.name,
            "fingerprint": step.fingerprint,
            "config": step.config.model_dump(mode="json"),
            "identity": step.identity,
            "inputs": {name: str(artifact.address) for name, artifact in inputs.items()},
        }


def report_finished(steps: Iterable[Step], storage: Place, observer: Observer) -> None:
    """Reports those of the steps that are finished: before the others run, these were finished earlier."""
    for step in steps:
        if step.is_finished(storage):
            observer(Ended(step, load(step.place(storage)), cached=True))
