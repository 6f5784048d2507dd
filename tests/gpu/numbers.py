"""Numbers of one computation in several places: on the CPU in float64 or float32, on a device in fp32 and bf16."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

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
        """A module or a tensor there, of that type; of a dataclass, a tuple or a dict all that it holds."""
        dtype = torch.float64 if self.precision == "fp64" else torch.float32
        if isinstance(value, nn.Module):
            return value.to(self.device, dtype)
        if isinstance(value, Tensor):
            return value.to(self.device, dtype if value.is_floating_point() else value.dtype)
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


CPU = Where(torch.device("cpu"))


@dataclass(frozen=True)
class Case:
    """compute: the numbers of something. fp32, bf16: the largest relative difference that is allowed between the
    reference and a device; bf16 none: whole numbers, which have no such type.
    """

    name: str
    compute: Callable[[Where], Numbers]
    fp32: float
    bf16: float | None
    reference: Where = Where(torch.device("cpu"), "fp64")

    def differences(self, device: torch.device) -> dict[str, tuple[float, float]]:
        """Precision -> the largest relative difference on the device, and what is allowed."""
        right, allowed = self.compute(self.reference), {"fp32": self.fp32, "bf16": self.bf16}
        return {
            precision: (difference(right, self.compute(Where(device, precision))), most)  # type: ignore[arg-type]
            for precision, most in allowed.items()
            if most is not None
        }


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
