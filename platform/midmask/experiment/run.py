"""Running a step: its inputs first, each once, nothing that is finished already. Who computes a step is handed in.

Every result has `seconds`: what the step says of itself (a training adds up its steps, across kills), else the time
that its maker took.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from midmask.artifact import Artifact, Place, Timing, load, produce
from midmask.experiment.plan import Step

Log = Callable[[int, dict[str, float]], None]
"""(training step, values by name): what a running step reports of itself."""


class Maker(Protocol):
    """Computes one step into `out` and returns its small results; safe to call again after a kill."""

    def __call__(self, config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]: ...


class Observer(Protocol):
    """Sees what runs, in one thread; all reports of a step come between its begin and its end. Changes no result."""

    def begin(self, step: Step) -> None: ...

    def log(self, step: Step, at: int, values: dict[str, float]) -> None: ...

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None: ...

    def fail(self, step: Step, error: Exception, lost: Sequence[Step]) -> None:
        """The step cannot be made, and what is lost with it, itself included."""


class Silent:
    """Observes nothing."""

    def begin(self, step: Step) -> None: ...

    def log(self, step: Step, at: int, values: dict[str, float]) -> None: ...

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None: ...

    def fail(self, step: Step, error: Exception, lost: Sequence[Step]) -> None: ...


class Runner:
    """Runs steps into a storage with given makers, told to an observer.

    Args:
        timing: of the leases by which jobs that share the storage see who still works; None: the default.
    """

    def __init__(
        self, storage: Place, makers: Mapping[str, Maker], observer: Observer, timing: Timing | None = None
    ) -> None:
        self.storage = storage
        self._makers = makers
        self._observer = observer
        self._timing = timing

    def is_finished(self, step: Step) -> bool:
        return step.is_finished(self.storage)

    def run(self, step: Step) -> Artifact:
        """The step's artifact, computed only if it is not there; inputs of a finished step are not even looked at."""
        place = step.place(self.storage)
        if self.is_finished(step):
            artifact = load(place)
            self._observer.end(step, artifact, cached=True)
            return artifact
        inputs = {name: self.run(source) for name, source in step.inputs.items()}
        if step.resume is not None:
            inputs["resume"] = self.run(step.resume)
        self._observer.begin(step)

        def make(out: Place) -> dict[str, Any]:
            log: Log = lambda at, values: self._observer.log(step, at, values)  # noqa: E731
            began = time.perf_counter()
            result = self._makers[step.name](step.config, inputs, out, log=log)
            return {"seconds": round(time.perf_counter() - began, 3), **result}

        try:
            artifact = produce(place, self._record(step, inputs), make, self._timing)
        except Exception as error:
            self._observer.fail(step, error, [step])
            raise
        self._observer.end(step, artifact, cached=False)
        return artifact

    def _record(self, step: Step, inputs: Mapping[str, Artifact]) -> dict[str, Any]:
        return {
            "step": step.name,
            "fingerprint": step.fingerprint,
            "config": step.config.model_dump(mode="json"),
            "identity": step.identity,
            "inputs": {name: str(artifact.address) for name, artifact in inputs.items()},
        }
