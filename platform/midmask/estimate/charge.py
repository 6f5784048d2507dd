"""What one step of a plan costs."""

from dataclasses import dataclass

from midmask.estimate.memory import Memory
from midmask.estimate.trainings import Training
from midmask.experiment.step import Step


@dataclass(frozen=True)
class Charge:
    """What one step costs.

    bytes: in the storage; peak_bytes: beside them, while it runs. tokens: that a model reads. flops: on devices.
    core_seconds: on CPU cores, of which as many help as there are unless `one_core`, or as there are workers if
    `by_workers`; alone_seconds: on one of them, before the others can help. memory: of each device, for trainings.
    fp32: whether its FLOPs are off the tensor cores; bf16: whether its config says bf16. host: bytes of the machine's
    memory, of indexes; host_of_a_core: those of each process of a step that has one a core; index: bytes that its GPUs
    share.
    """

    step: Step
    bytes: float
    tokens: float = 0.0
    flops: float = 0.0
    core_seconds: float = 0.0
    alone_seconds: float = 0.0
    one_core: bool = False
    by_workers: bool = False
    peak_bytes: float = 0.0
    memory: Memory | None = None
    training: Training | None = None
    fp32: bool = False
    bf16: bool = False
    host: float = 0.0
    host_of_a_core: float = 0.0
    index: float = 0.0
