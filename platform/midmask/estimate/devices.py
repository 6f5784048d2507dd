"""The table of devices, and cluster shapes such as `8xH100` or `2xcpu`.

Every device has one utilisation: what this kind of training makes, on average over a whole job, of the peak that its
maker states.

A100    Ma et al. 2024 (bowdpr, README) publish 269.7 samples of 512 tokens a second for MLM at BERT's base size, 85.8
        for RetroMAE, whose collator keeps it waiting: 27% and 11% of an A100's peak, 16% as a harmonic mean. They do
        not name their GPU; that it was one A100 is assumed.
others  At width 768 most kernels wait for memory, not for arithmetic. So the A100's 16% times what the device has of
        memory bandwidth by peak, against the A100-40G's 1.555 TB/s by 312 TFLOP/s; at most 30%.
fp32    Encoding, scoring and dense search in fp32 multiply without TF32, off the tensor cores: 60% of that peak, which
        large matrices reach, or the rate of training, whichever is less.
cpu     One core with AVX-512 at 3 GHz, twice as fast in bf16 (`BF16_GAIN`); of this machine, what a core is measured to
        reach in products of matrices, in either. 30% of it is left by threads, padding, AdamW and small matrices.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter
from typing import Literal

import torch

from midmask.core.process import usable_cores, usable_memory
from midmask.errors import UserError, unknown
from midmask.training.rehearsal import GIB, USABLE

CORES_PER_GPU = 8
"""CPU cores beside each GPU of a named shape; cloud machines have 8 to 30."""
FP32_UTILISATION = 0.6
BF16_GAIN = 2.0
"""Speed-up of a CPU that has bf16 products; with AVX-512's 4 are measured."""


@dataclass(frozen=True)
class Device:
    """A kind of device: its memory and its speed."""

    name: str
    kind: Literal["cpu", "cuda"]
    memory: int | None  # bytes; None for a CPU core, since cores share theirs
    peak: float  # FLOP/s, dense, in the type of trainings (bf16 or fp16; fp32 on CPUs)
    utilisation: float  # fraction of the peak that a training reaches
    fp32: float | None = None  # FLOP/s, dense, off the tensor cores; None for a CPU core, where it is the peak
    bf16_gain: float = 1.0  # how many times the peak it reaches in bf16; peaks of GPUs are those of bf16

    @property
    def room(self) -> float | None:
        """Bytes that tensors can have; of a CPU core none, since cores share their machine's."""
        return None if self.memory is None else USABLE * self.memory

    def rate(self, *, bf16: bool) -> float:
        """FLOP/s that trainings and encodings reach in this precision."""
        usual = self.peak * self.utilisation
        if self.fp32 is None:
            return usual * (self.bf16_gain if bf16 else 1.0)
        return usual if bf16 else min(usual, FP32_UTILISATION * self.fp32)


def _gpu(name: str, gib: int, teraflops: float, utilisation: float, fp32: float) -> Device:
    return Device(name, "cuda", gib * GIB, teraflops * 1e12, utilisation, fp32=fp32 * 1e12)


DEVICES = {
    device.name.lower(): device
    for device in (
        Device("cpu", "cpu", None, 96e9, 0.30, bf16_gain=BF16_GAIN),
        _gpu("V100-16G", 16, 125, 0.23, 15.7),  # 0.900 TB/s
        _gpu("V100-32G", 32, 125, 0.23, 15.7),
        _gpu("T4", 15, 65, 0.16, 8.1),  # 0.320
        _gpu("L4", 22, 121, 0.08, 30.3),  # 0.300
        _gpu("A10G", 22, 125, 0.15, 31.2),  # 0.600
        _gpu("A100-40G", 40, 312, 0.16, 19.5),  # 1.555
        _gpu("A100-80G", 80, 312, 0.21, 19.5),  # 2.039
        _gpu("H100", 80, 989, 0.11, 67),  # 3.35
        _gpu("H200", 139, 989, 0.16, 67),  # 4.8
    )
}

EXAMPLES = "8xH100 or 2xcpu"


@dataclass(frozen=True)
class Shape:
    """The shape of a cluster: a number of devices of one kind, with CPU cores and memory."""

    device: Device
    count: int
    cores: int  # CPU cores of the whole cluster
    ram: int | None  # bytes of one machine's memory; None: not known, as for named GPUs
    label: str = ""  # name to show where the shape was not named

    def __str__(self) -> str:
        return self.label or f"{self.count}x{self.device.name}"


def shape_named(text: str) -> Shape:
    """`8xH100`, or a device alone; names in any case.

    Raises:
        UserError: for a text of another form, or an unknown device.
    """
    match = re.fullmatch(r"(?:([1-9]\d*)x)?([a-z][\w-]*)", text.strip(), re.IGNORECASE)
    if match is None:
        raise UserError(f"--on {text!r}: a shape is COUNTxDEVICE; write {EXAMPLES}")
    count, name = int(match[1] or 1), match[2]
    if name.lower() not in DEVICES:
        raise unknown("device", name, [device.name for device in DEVICES.values()], hint=f"Write {EXAMPLES}.")
    device = DEVICES[name.lower()]
    if device.kind == "cpu":
        return Shape(device, count, count, usable_memory())
    return Shape(device, count, count * CORES_PER_GPU, None)


MATRIX = 512
"""Rows and columns of the matrices whose product tells the speed of a core: a millisecond or two."""


@cache
def core_peak(kind: torch.dtype) -> float:
    """FLOP/s of one core of this machine in products of matrices of this kind of numbers.

    The best of ten, since others may work beside it.
    """
    matrix, threads = torch.ones(MATRIX, MATRIX, dtype=kind), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = []
        for _ in range(10):
            began = perf_counter()
            torch.mm(matrix, matrix)
            seconds.append(perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return 2 * MATRIX**3 / min(seconds)


def this_machine() -> Shape:
    """The GPUs of this machine, else the CPU cores that this process may use. A GPU that the table lacks is taken for
    the one of the table that is next below it in memory, by its own memory."""
    cores = usable_cores()
    if not torch.cuda.is_available():
        peak = core_peak(torch.float32)
        core = replace(DEVICES["cpu"], peak=peak, bf16_gain=core_peak(torch.bfloat16) / peak)
        return Shape(core, cores, cores, usable_memory(), f"this machine ({cores} CPU cores)")
    name, memory = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
    gpus = [device for device in DEVICES.values() if device.memory is not None]
    smaller = [device for device in gpus if (device.memory or 0) <= 1.05 * memory] or gpus
    named = [device for device in smaller if device.name.split("-")[0].lower() in name.lower()]
    like = max(named or smaller, key=lambda device: device.memory or 0)
    count = torch.cuda.device_count()
    label = f"this machine ({count} x {name}, reckoned as {like.name})"
    return Shape(replace(like, memory=memory), count, cores, usable_memory(), label)
