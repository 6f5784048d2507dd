"""Every method takes a step with finite gradients on a BERT, MLM does on every family, and what cannot is refused.

All methods on all families: tests/system/encoders.
"""

import pytest

from tests.support.encoders.methods import METHODS, REFUSED, assert_steps
from tests.support.encoders.models import VARIANTS

PAIRS = [*((method, "bert") for method in METHODS), *(("mlm", variant) for variant in VARIANTS), *REFUSED]


@pytest.mark.parametrize(("method", "variant"), sorted(set(PAIRS)))
def test_a_step_is_finite_or_refused_beforehand(method: str, variant: str) -> None:
    assert_steps(method, variant)
