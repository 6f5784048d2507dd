"""How far a job on a cluster is: the steps that it began, as its log on the head tells them."""

import re
import time
from dataclasses import dataclass, field

from tests.scale.bed import Cluster
from tests.scale.losses import Loss
from tests.scale.machine import HOME

EVERY_S = 0.5

APART_S = 5.0
"""Seconds between two losses, so that what follows from the first can be seen."""

STARTED = re.compile(r"(\S+): starts$", re.M)


@dataclass
class Watch:
    """Seconds are counted from when it is made. seen: name of a step -> when it was first seen to start; a job that is
    started again begins some anew.
    """

    began: float = field(default_factory=time.monotonic)
    seen: dict[str, float] = field(default_factory=dict)
    lost: float = 0.0

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def look(self, there: Cluster) -> None:
        """Reads the log; a head that is not there has none."""
        time.sleep(EVERY_S)
        log = there.head.run("sh", "-c", f"grep -h starts {HOME}/logs/*.log")
        for name in STARTED.findall(log.stdout):
            self.seen.setdefault(name, round(self.seconds(), 1))

    def is_due(self, loss: Loss) -> bool:
        """Whether the loss' moment has come, and the last one is over."""
        starts = list(self.seen.values())
        come = loss.step < len(starts) and self.seconds() - starts[loss.step] >= loss.after
        return come and self.seconds() - self.lost >= APART_S
