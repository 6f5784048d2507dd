"""Estimates what a plan needs before it runs: hours, memory, bytes in the storage; refuses what could never run.

steps ─► volumes (how much there is to read) ─► trainings, plan (what each needs) ─► refusals (report, refusal)
"""

from midmask.estimate.devices import Shape, shape_named
from midmask.estimate.plan import Estimate, estimate
from midmask.estimate.refusals import as_text, refuse_impossible

__all__ = ["Estimate", "Shape", "as_text", "estimate", "refuse_impossible", "shape_named"]
