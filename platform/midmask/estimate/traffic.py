"""What a plan asks of an object store, and what its nodes send each other.

Each step writes its artifact once and reads it back once, to state its digests; it reads each of its inputs once, in
requests of 8 MiB at most. Leases, lists of names and records come with every step, whatever its size. A node beside the
first fetches models, tokenizers and whole indexes for itself, which is not in the sum.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from midmask.estimate.charge import Charge
from midmask.estimate.storage import WHOLE
from midmask.estimate.volumes import Volumes
from midmask.place import READ_AT_ONCE

WRITES, READS = 60, 100
"""Requests of a step that go with few bytes: counted 37 to 125 that write or list, and 40 to 380 that read
(docs/results/scale.md)."""


@dataclass(frozen=True)
class Traffic:
    """writes, reads: requests to the store, as stores bill them (a list counts as a write). up, down: bytes to it and
    from it. exchanged: bytes that training workers send each other."""

    writes: float
    reads: float
    up: float
    down: float
    exchanged: float


def traffic(charges: Iterable[Charge], volumes: Volumes, workers: int) -> Traffic:
    """Of all steps that are left, on a storage that is not a disk.

    Args:
        workers: of a training.
    """
    own = list(charges)
    sizes = {charge.step.fingerprint: charge.bytes for charge in own}
    written = sum(sizes.values())
    inputs = [source for charge in own for source in charge.step.inputs.values()]
    for source in inputs:
        if source.fingerprint not in sizes:  # finished; asked for once, though several steps read it
            sizes[source.fingerprint] = volumes.size(source)
    read = sum(sizes[source.fingerprint] for source in inputs)
    return Traffic(
        writes=WRITES * len(own) + written / READ_AT_ONCE,
        reads=READS * len(own) + (written + read) / READ_AT_ONCE,
        up=written,
        down=written + read,
        exchanged=sum(_exchanged(charge, workers) for charge in own),
    )


def _exchanged(charge: Charge, workers: int) -> float:
    """Bytes of gradients that all workers send in a training: each 2 (W - 1) / W of them in a step, as rings do."""
    if charge.training is None:
        return 0.0
    return 2.0 * (workers - 1) * WHOLE * charge.training.counted.parameters * charge.training.steps
