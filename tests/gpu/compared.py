"""Numbers that one computation has in several places: on the CPU in float64 or float32, on a device in fp32 and bf16.

A case is a function from a `Where` to numbers by name. Its reference is computed once on the CPU; what the device
computes is as right as its largest relative difference from that is small.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from midmask.errors import reason

Numbers = Mapping[str, Tensor]
"""What is compared: name -> a tensor, on whatever device."""

LEAST = 0.1
"""Numbers below this share of the largest of their tensor are compared with this share instead: a rounding error of
what is nearly 0 says nothing."""


@dataclass(frozen=True)
class Where:
    """A device, and the type of its numbers: fp64 is of weights, bf16 of the products under autocast."""

    device: torch.device
    precision: Literal["fp64", "fp32", "bf16"] = "fp32"

    def put(self, value: Any) -> Any:
        """A module or a tensor there, of that type; of a dataclass or a tuple all that it holds; else the value."""
        if isinstance(value, nn.Module):
            return (value.double() if self.precision == "fp64" else value.float()).to(self.device)
        if isinstance(value, Tensor):
            wide = value.is_floating_point()
            return (
                value.to(self.device, torch.float64 if self.precision == "fp64" else torch.float32)
                if wide
                else (value.to(self.device))
            )
        if isinstance(value, tuple):
            parts = [self.put(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, dict):
            return {key: self.put(part) for key, part in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            return type(value)(**{field.name: self.put(getattr(value, field.name)) for field in fields(value)})
        return value

    @contextmanager
    def autocast(self) -> Iterator[None]:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            yield


@dataclass(frozen=True)
class Case:
    """One thing that is compared.

    what: its kind and name, as the table has them. compute: its numbers. reference: where the right ones are computed.
    fp32, bf16: the largest relative difference that is allowed; bf16 none: integers, which have no such type.
    """

    kind: str
    name: str
    compute: Callable[[Where], Numbers]
    fp32: float
    bf16: float | None
    reference: Where = Where(torch.device("cpu"), "fp64")


@dataclass(frozen=True)
class Row:
    """A case's differences on the device; bf16 none: not computed. failure: what was raised instead, or empty."""

    case: Case
    fp32: float
    bf16: float | None
    failure: str = ""

    @property
    def passed(self) -> bool:
        bf16_holds = self.bf16 is None or self.case.bf16 is None or self.bf16 <= self.case.bf16
        return not self.failure and self.fp32 <= self.case.fp32 and bf16_holds

    def cells(self) -> tuple[str, ...]:
        tolerance = f"{self.case.fp32:.0e}" + ("" if self.case.bf16 is None else f", {self.case.bf16:.0e}")
        bf16 = "-" if self.bf16 is None else f"{self.bf16:.1e}"
        verdict = "yes" if self.passed else f"**no** {self.failure}".strip()
        return self.case.kind, self.case.name, f"{self.fp32:.1e}", bf16, tolerance, verdict


def compare(cases: Iterable[Case], device: torch.device) -> Iterator[Row]:
    """The row of each case. An error on the device is a row that fails; one of the reference is raised."""
    for case in cases:
        right = case.compute(case.reference)
        try:
            fp32 = difference(right, case.compute(Where(device, "fp32")))
            bf16 = None if case.bf16 is None else difference(right, case.compute(Where(device, "bf16")))
            yield Row(case, fp32, bf16)
        except Exception as error:  # every row is wanted, whatever one of them meets on a device that was never tried
            yield Row(case, math.inf, None, reason(error))


def difference(right: Numbers, found: Numbers) -> float:
    """The largest relative difference of any number; infinite for names or shapes that differ, and for NaN.

    Of two infinities or two NaNs in the same place nothing is different.
    """
    if right.keys() != found.keys():
        return math.inf
    return max((_difference(right[name], found[name]) for name in right), default=0.0)


def _difference(right: Tensor, found: Tensor) -> float:
    right, found = (tensor.detach().cpu() for tensor in (right, found))
    if right.shape != found.shape:
        return math.inf
    if not right.numel():
        return 0.0
    if not right.is_floating_point():
        return float((right != found).double().mean())
    right, found = right.double(), found.double()
    size = right.abs()
    floor = LEAST * float(size[size.isfinite()].max()) if bool(size.isfinite().any()) else 0.0
    apart = (right - found).abs() / size.clamp(min=floor or 1.0)
    same = (right == found) | (right.isnan() & found.isnan())
    return float(apart.masked_fill(same, 0.0).nan_to_num(nan=math.inf, posinf=math.inf).max())
