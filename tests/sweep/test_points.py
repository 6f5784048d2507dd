"""Points of spaces with conditions: the grid is the filtered product, and no draw is impossible."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.sweep.points import budget, check, complete, grid, mark_of
from midmask.sweep.space import Space

ABSENT = object()
DECODER = {
    "objective.decoding": {"values": ["enhanced", "basic"]},
    "objective.decoder_layers": {"values": [1, 2, 3], "when": {"objective.decoding": "basic"}},
    "objective.decoder_mask_ratio": {"values": [0.5, 0.7]},
}


def space_of(parameters, **fields) -> Space:
    return Space.model_validate({"name": "s", "recipe": "retromae", "parameters": parameters, **fields})


@st.composite
def spaces(draw) -> Space:
    """Two to five parameters of one to three values; some exist only where one or two above have certain values."""
    parameters: dict[str, dict] = {}
    for number in range(draw(st.integers(2, 5))):
        values = list(range(draw(st.integers(1, 3))))
        above = draw(st.lists(st.sampled_from(sorted(parameters)), max_size=2, unique=True)) if parameters else []
        when = {path: draw(st.lists(st.sampled_from(parameters[path]["values"]), min_size=1)) for path in above}
        parameters[f"p.{number}"] = {"values": values, "when": when}
    return space_of(parameters)


def filtered_product(space: Space) -> list[dict]:
    """Every assignment of a value or nothing to every parameter, of which those stay where a parameter has a value
    exactly if all its conditions hold.
    """
    paths = list(space.parameters)
    found = []
    for choice in itertools.product(*([*space.parameters[path].values, ABSENT] for path in paths)):
        point = dict(zip(paths, choice, strict=True))
        holds = {
            path: all(point[other] in wanted for other, wanted in space.parameters[path].when.items()) for path in paths
        }
        if all((point[path] is not ABSENT) == holds[path] for path in paths):
            found.append({path: value for path, value in point.items() if value is not ABSENT})
    return found


def as_set(points) -> set[str]:
    return {str(sorted(point.items())) for point in points}


@settings(max_examples=80)
@given(spaces())
def test_the_grid_is_the_filtered_product_each_point_once(space):
    points = grid(space)
    assert as_set(points) == as_set(filtered_product(space)) and len(points) == len(as_set(points)) == budget(space)


@settings(max_examples=25)
@given(spaces(), st.integers(0, 99))
def test_whatever_is_drawn_is_a_point_of_the_grid(space, seed):
    rng, possible = random.Random(seed), as_set(filtered_product(space))
    drawn = [complete(space, lambda path, distribution: rng.choice(distribution.values)) for _ in range(40)]
    assert as_set(drawn) <= possible


def test_the_decoder_is_one_layer_where_it_is_enhanced():
    space = space_of(DECODER)
    recipes = [override(RECIPES["retromae"](), point) for point in grid(space)]
    layers = [(recipe.objective.decoding, recipe.objective.decoder_layers) for recipe in recipes]
    assert layers[::2] == [("enhanced", 1), ("basic", 1), ("basic", 2), ("basic", 3)] and len(layers) == 8


def test_values_that_exclude_each_other_are_found_and_the_condition_named():
    free = {path: {"values": field["values"]} for path, field in DECODER.items()}
    with pytest.raises(
        UserError, match=r"decoding enhanced, decoder layers 2, .*exclude each other .*when: \{PATH: VALUE"
    ):
        check(space_of(free), RECIPES["retromae"]())
    check(space_of(DECODER), RECIPES["retromae"]())


def test_what_the_recipe_has_where_a_parameter_does_not_exist_must_be_possible():
    deep = override(RECIPES["retromae"](), {"objective.decoding": "basic", "objective.decoder_layers": 2})
    with pytest.raises(UserError, match=r"decoder_layers = 2 needs decoding = basic"):
        check(space_of(DECODER), deep)


def test_a_mark_must_be_a_point():
    path = "objective.decoder_mask_ratio"
    good, bad = ({"paper": {path: value}} for value in (0.5, 0.55))
    space = space_of(DECODER, marks=good)
    assert [mark_of(space, point) for point in grid(space)] == ["paper", None] * 4
    with pytest.raises(UserError, match=r"marks\.paper: no point of the space has .*0\.55"):
        check(space_of(DECODER, marks=bad), RECIPES["retromae"]())
