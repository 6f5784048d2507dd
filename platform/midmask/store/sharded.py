"""Steps that work shard by shard: the unit of work, of going on after a kill, and of spreading over a cluster.

A shard is made from the source's shard of the same name, whatever else has been made, and written whole or not at all.
So shards can be made in any order, on any machine, and one that is there already is not made again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from midmask.core.config import Config
from midmask.store.artifact import Artifact
from midmask.store.place import Place

Inputs = Mapping[str, Artifact]


@dataclass(frozen=True)
class Sharded:
    """One such step; called, it computes all of it in this process.

    folder: where the shards are written, below the step's place. over: the input and its folder whose shards they
    follow, such as "corpus/docs"; or a folder of the step's own, which `begin` fills. begin: what must be there before
    the first shard; safe to call again. worker: makes the function that writes `<folder>/<file name>` for a name; what
    is costly to load is loaded there, once a worker.
    finish: what is written after the last shard, and the step's small results. stays: whether workers load so much
    (a model) that they should be kept, one per GPU. file_name: of a shard, by the name of its source; the same, if it
    has the same format.
    """

    folder: str
    over: str
    begin: Callable[[Any, Inputs, Place], None]
    worker: Callable[[Any, Inputs, Place], Callable[[str], None]]
    finish: Callable[[Any, Inputs, Place], dict[str, Any]]
    stays: Callable[[Any], bool] = lambda config: False
    file_name: Callable[[str], str] = str

    def missing(self, inputs: Inputs, out: Place) -> list[str]:
        """Names of the sources whose shards are still to be made; removes files that a killed run has left half
        written.
        """
        source, _, folder = self.over.rpartition("/")
        wanted = ((inputs[source].place if source else out) / folder).names()
        present = (out / self.folder).names()
        for name in set(present) - set(map(self.file_name, wanted)):
            (out / self.folder / name).delete()
        return [name for name in wanted if self.file_name(name) not in present]

    def __call__(self, config: Config, inputs: Inputs, out: Place) -> dict[str, Any]:
        self.begin(config, inputs, out)
        if missing := self.missing(inputs, out):
            make = self.worker(config, inputs, out)
            for name in missing:
                make(name)
        return self.finish(config, inputs, out)
