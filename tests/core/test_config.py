"""Identity: what changes the fingerprint, what must not, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from midmask.core.config import Config, added, canonical, fingerprint, flatten, identity_of, override, runtime
from midmask.errors import UserError


class Inner(Config):
    ratio: float = Field(0.3, gt=0, lt=1)
    log_every: int = runtime(10, "steps between log lines", ge=1)


class Outer(Config):
    name: str = "x"
    inner: Inner = Inner()
    stages: tuple[Inner, ...] = (Inner(), Inner(ratio=0.5))


def test_runtime_fields_stay_out_of_the_fingerprint_at_every_depth():
    slow = override(Outer(), {"inner.log_every": 99, "stages.1.log_every": 7})
    assert fingerprint(slow) == fingerprint(Outer())
    assert fingerprint(override(Outer(), {"stages.1.ratio": 0.6})) != fingerprint(Outer())
    assert identity_of(Outer()) == {"name": "x", "inner": {"ratio": 0.3}, "stages": [{"ratio": 0.3}, {"ratio": 0.5}]}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), plain, max_size=5))
def test_key_order_is_not_identity_and_a_float_is_no_int(value):
    assert canonical(value) == canonical(dict(reversed(value.items())))
    assert fingerprint({"a": 1}) != fingerprint({"a": 1.0})


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {"a": {2}}, len, b"x"])
def test_what_has_no_canonical_form_is_refused_rather_than_guessed(value):
    with pytest.raises((TypeError, ValueError), match="JSON"):
        canonical({"key": value})


def test_override_takes_text_as_typed_and_validates():
    changed = override(Outer(), {"inner.ratio": "0.25", "name": "0.5x"})
    assert (changed.inner.ratio, changed.name) == (0.25, "0.5x")
    assert flatten(changed)["stages.1.ratio"] == 0.5
    assert override(Outer(), {"inner": '{"ratio": 0.25}'}).inner == changed.inner


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("inner.ration", "0.2", ["'inner.ration'", "did you mean 'inner.ratio'", "stages.0.ratio"]),
        ("inner.ratio", "1.7", ["inner.ratio = 1.7", "less than 1"]),
        ("stages.1.ratio", "high", ["stages.1.ratio = 'high'", "number"]),
        ("inner", {"ration": 0.25}, ["inner.ration: no such field"]),
        ("inner", "0.25", ["unknown field 'inner'"]),
    ],
)
def test_a_wrong_override_is_one_line_with_field_value_and_choices(path, value, words):
    with pytest.raises(UserError) as caught:
        override(Outer(), {path: value})
    assert "\n" not in str(caught.value) and all(word in str(caught.value) for word in words)


class WithAnAddedField(Config):
    old: int = 1
    new: str = added("as before", "came later")


def test_an_added_field_is_identity_unless_it_has_its_default() -> None:
    assert identity_of(WithAnAddedField()) == {"old": 1}
    assert identity_of(WithAnAddedField(new="other")) == {"old": 1, "new": "other"}
