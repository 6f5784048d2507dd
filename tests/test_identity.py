"""Identity: what changes the fingerprint, what must not, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from midmask.errors import UserError, unknown
from midmask.identity import Config, added, canonical, fingerprint, flatten, identity_of, override, runtime


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
def test_key_order_is_not_identity(value):
    assert canonical(value) == canonical(dict(reversed(value.items())))


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {"a": {2}}, len, b"x"])
def test_what_has_no_canonical_form_is_refused_rather_than_guessed(value):
    with pytest.raises(TypeError, match="canonical form"):
        canonical({"key": value})


def test_a_float_and_an_int_are_different_values():
    assert fingerprint({"a": 1}) != fingerprint({"a": 1.0})


def test_override_takes_text_as_typed_and_validates():
    changed = override(Outer(), {"inner.ratio": "0.25", "name": "0.5x"})
    assert (changed.inner.ratio, changed.name) == (0.25, "0.5x")
    assert flatten(changed)["stages.1.ratio"] == 0.5


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("inner.ration", "0.2", ["'inner.ration'", "did you mean 'inner.ratio'", "stages.0.ratio"]),
        ("inner.ratio", "1.7", ["inner.ratio = 1.7", "less than 1"]),
        ("stages.1.ratio", "high", ["stages.1.ratio = 'high'", "number"]),
    ],
)
def test_a_wrong_override_is_one_line_with_field_value_and_choices(path, value, words):
    with pytest.raises(UserError) as caught:
        override(Outer(), {path: value})
    assert "\n" not in str(caught.value) and all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("typed", ["numpy, scipy", "[numpy,scipy]", "['numpy', 'scipy']"])
def test_a_list_that_is_not_json_is_told_as_json(typed: str) -> None:
    class Packages(Config):
        packages: tuple[str, ...] = ()

    with pytest.raises(UserError, match='a list is wanted; write \'\\["numpy", "scipy"\\]\''):
        override(Packages(), {"packages": typed})
    assert override(Packages(), {"packages": '["numpy", "scipy"]'}).packages == ("numpy", "scipy")


def test_a_whole_config_is_set_by_an_object_of_its_fields():
    assert override(Outer(), {"inner": '{"ratio": 0.25}'}).inner == override(Outer(), {"inner.ratio": 0.25}).inner
    with pytest.raises(UserError, match=r"inner.ration: no such field"):
        override(Outer(), {"inner": {"ration": 0.25}})
    with pytest.raises(UserError, match="unknown field 'inner'"):
        override(Outer(), {"inner": "0.25"})


def test_of_very_many_names_the_nearest_are_told():
    message = str(unknown("field", "stage.17", [f"stage.{number}" for number in range(100)]))
    assert "did you mean 'stage.17'" in message and "Of 100 the nearest: " in message and len(message) < 250
    assert "None of 100 is like it" in str(unknown("field", "zzz", [f"stage.{number}" for number in range(100)]))


class WithAnAddedField(Config):
    old: int = 1
    new: str = added("as before", "came later")


def test_an_added_field_is_identity_unless_it_has_its_default() -> None:
    assert identity_of(WithAnAddedField()) == {"old": 1}
    assert identity_of(WithAnAddedField(new="other")) == {"old": 1, "new": "other"}
