"""Steps that work shard by shard: the unit of work, of going on after a kill, and of spreading over a cluster.

A shard is made from the source's shard of the same name, whatever else has been made, and written whole or not at all.
So shards can be made in any order, on any machine, and one that is there already is not made again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from midmask.core.config import Config
from midmask.store.artifact import Artifact
from midmask.store.place import Place

Inputs = Mapping[str, Artifact]


@dataclass(frozen=True)
class Sharded:
    """A step that is computed shard by shard; called, it computes all shards in this process."""

    folder: str  # where the shards are written, below the step's place
    over: str  # input and folder whose shards it follows, such as "corpus/docs"; or its own folder that `begin` fills
    # loads what is costly, once a worker; returns the function that writes `<folder>/<file name>` for a name
    worker: Callable[[Any, Inputs, Place], Callable[[str], None]]
    # writes what comes after the last shard; returns the step's small results
    finish: Callable[[Any, Inputs, Place], dict[str, Any]]
    # whether workers load so much (a model) that they are kept, one per GPU
    stays: Callable[[Any], bool] = lambda config: False
    file_name: Callable[[str], str] = str  # name of a source -> of its shard
    # makes what must exist before the first shard; safe to call again
    begin: Callable[[Any, Inputs, Place], None] = lambda config, inputs, out: None

    def missing(self, inputs: Inputs, out: Place) -> list[str]:
        """Names of the sources whose shards are still to be made; removes files that a killed run has left half
        written.
        """
        source, _, folder = self.over.rpartition("/")
        sources = ((inputs[source].place if source else out) / folder).names()
        present = (out / self.folder).names()
        for name in set(present) - set(map(self.file_name, sources)):
            (out / self.folder / name).delete()
        return [name for name in sources if self.file_name(name) not in present]

    def shard(self, out: Place, name: str) -> Place:
        """The file of the shard that is made from a source."""
        return out / self.folder / self.file_name(name)

    def make(self, config: Config, inputs: Inputs, out: Place, names: Sequence[str]) -> None:
        """Makes the shards of these sources with one worker; none is opened for none."""
        if names:
            make_shard = self.worker(config, inputs, out)
            for name in names:
                make_shard(name)

    def __call__(self, config: Config, inputs: Inputs, out: Place) -> dict[str, Any]:
        self.begin(config, inputs, out)
        self.make(config, inputs, out, self.missing(inputs, out))
        return self.finish(config, inputs, out)
