"""Every method takes a step with finite gradients on every family of backbones."""

import pytest

from tests.support.encoders.methods import METHODS, REFUSED, assert_steps
from tests.support.encoders.models import VARIANTS


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "bert"])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_finite(method: str, variant: str) -> None:
    if (method, variant) not in REFUSED:
        assert_steps(method, variant)
