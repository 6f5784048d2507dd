"""A survey that reads no collection, for plans of recipes whose corpus lies nowhere."""

from collections.abc import Callable, Mapping
from typing import Any

from midmask.corpora import corpus_identity
from midmask.experiment.training_steps import Survey, T


class Unread(Survey):
    """Takes each collection for one that holds its own name; all other places are read."""

    def find(self, read: Callable[[T], Mapping[str, Any]], of: T) -> Mapping[str, Any]:
        return {"files": getattr(of, "name", "")} if read is corpus_identity else super().find(read, of)
