"""Estimates the cost of a plan before it runs: tokens, FLOPs, memory, storage and hours on a cluster shape.

steps ─► volumes (how much there is to read) ─► charges (what each step costs) ─► plan (the sum) ─► rendering, refusals
"""

from midmask.estimate.devices import Shape, shape_named
from midmask.estimate.plan import Estimate, estimate
from midmask.estimate.refusals import refuse_impossible
from midmask.estimate.rendering import as_text

__all__ = ["Estimate", "Shape", "as_text", "estimate", "refuse_impossible", "shape_named"]
