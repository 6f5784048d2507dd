"""What one step of a plan costs."""

from dataclasses import dataclass

from midmask.estimate.memory import Memory
from midmask.estimate.trainings import Training
from midmask.experiment.step import Step


@dataclass(frozen=True)
class Charge:
    """What one step costs. Sizes are in bytes, times in seconds."""

    step: Step
    bytes: float  # of the artifact in the storage
    tokens: float = 0.0  # that models read
    flops: float = 0.0  # on devices
    core_seconds: float = 0.0  # of work that divides by the cores: all, or as `one_core` and `by_workers` say
    alone_seconds: float = 0.0  # of work on one core, before the others can begin
    one_core: bool = False  # core_seconds are of one core
    by_workers: bool = False  # core_seconds divide by the workers, a core each
    peak_bytes: float = 0.0  # in the storage while the step runs, besides `bytes`
    memory: Memory | None = None  # of each device, for trainings
    training: Training | None = None
    fp32: bool = False  # the FLOPs are in float32, without tensor cores
    bf16: bool = False  # the step's config says bf16
    host: float = 0.0  # of the machine's memory, for indexes
    host_of_a_core: float = 0.0  # of the machine's memory, for each process of a step with a process a core
    index: float = 0.0  # of GPU memory, shared by all GPUs of the step
