"""Estimates the cost of a plan before it runs: tokens, FLOPs, memory, storage and hours on a cluster shape.

steps ─► volumes (how much there is to read) ─► charges (what each step costs) ─► plan (the sum) ─► report
"""

from midmask.estimate.devices import Shape, shape_named
from midmask.estimate.plan import Estimate, estimate
from midmask.estimate.report import as_text, refuse_impossible

__all__ = ["Estimate", "Shape", "as_text", "estimate", "refuse_impossible", "shape_named"]
