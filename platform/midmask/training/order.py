"""The plan carried out: (step, token rows of one worker) in order, from any step on.

The one-process reader here is what every other reader has to equal (`backend.stream`). Nothing here imports torch:
reading tasks start on processes of their own, and torch alone would take them longer to load than to read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from midmask.training.examples import Examples, TextColumns, open_examples
from midmask.training.plan import BatchPlan


@dataclass(frozen=True)
class Order:
    """The rows that one worker reads in steps start … stop - 1 of the batch plan. Picklable."""

    examples: Examples
    batch_size: int
    seed: int
    rank: int
    size: int
    start: int
    stop: int

    def plan(self) -> BatchPlan:
        return plan_of(self.examples, self.batch_size, self.seed)

    def read(self, step: int) -> TextColumns:
        """This worker's token rows of one step."""
        plan = self.plan()
        rows = plan.share(step, self.rank, self.size)
        return open_examples(self.examples).read(rows, self.seed, plan.epoch_of(step))


@lru_cache(maxsize=2)
def plan_of(examples: Examples, batch_size: int, seed: int) -> BatchPlan:
    source = open_examples(examples)
    return BatchPlan(source.count, batch_size, seed, examples.fingerprint, source.lengths)


OrderReader = Callable[[Order], Iterator[tuple[int, TextColumns]]]


def local_reader(order: Order) -> Iterator[tuple[int, TextColumns]]:
    """The one-process reader."""
    for step in range(order.start, order.stop):
        yield step, order.read(step)
