"""The unfinished steps of one or many experiments as one graph, in which a step that several need is one node."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from midmask.artifact import Place
from midmask.experiment.step import Step


@dataclass
class Graph:
    """Which steps are left, and which of them can start.

    left: fingerprint -> step that has not ended. lacks: what each still waits for. users: what waits for each.
    weight: the length of the longest chain that begins with it; long chains start first. there: targets, and inputs of
    what is left, that were finished before.
    """

    left: dict[str, Step] = field(default_factory=dict)
    lacks: dict[str, set[str]] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=dict)
    weight: dict[str, float] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    there: dict[str, Step] = field(default_factory=dict)

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
                    graph.there[step.fingerprint] = step
            return known[step.fingerprint]

        waiting = [step for step in targets if not is_done(step)]
        while waiting:
            step = waiting.pop()
            if step.fingerprint in graph.left:
                continue
            lacking = [source for source in step.sources().values() if not is_done(source)]
            graph.left[step.fingerprint] = step
            graph.lacks[step.fingerprint] = {source.fingerprint for source in lacking}
            for source in lacking:
                graph.users.setdefault(source.fingerprint, set()).add(step.fingerprint)
            waiting += lacking
        for name in graph.left:
            graph._weigh(name, cost)
        return graph

    @staticmethod
    def left_in(storage: Place, targets: Iterable[Step], cost: Callable[[Step], float] = lambda step: 1.0) -> "Graph":
        """The graph of the steps that the targets need and a storage lacks."""
        return Graph.of(targets, lambda step: step.is_finished(storage), cost)

    def _weigh(self, name: str, cost: Callable[[Step], float]) -> float:
        if name not in self.weight:
            after = max((self._weigh(user, cost) for user in self.users.get(name, ())), default=0.0)
            self.weight[name] = cost(self.left[name]) + after
        return self.weight[name]

    def ready(self) -> list[Step]:
        """Steps whose inputs are all there and that have not been started, the longest chain first."""
        free = [name for name, lacking in self.lacks.items() if not lacking and name not in self.started]
        return [self.left[name] for name in sorted(free, key=lambda name: (-self.weight[name], name))]

    def start(self, step: Step) -> None:
        self.started.add(step.fingerprint)

    def end(self, step: Step) -> None:
        """The step is finished."""
        self._drop(step.fingerprint)
        for user in self.users.get(step.fingerprint, ()):
            if user in self.lacks:
                self.lacks[user].discard(step.fingerprint)

    def fail(self, step: Step) -> list[Step]:
        """Removes a failed step and every step that depends on it; returns them."""
        lost, waiting = [], [step.fingerprint]
        while waiting:
            name = waiting.pop()
            if name in self.left:
                lost.append(self.left[name])
                self._drop(name)
                waiting += self.users.get(name, ())
        return lost

    def _drop(self, name: str) -> None:
        del self.left[name], self.lacks[name]
        self.started.discard(name)
