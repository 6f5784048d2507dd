"""Search spaces and their files, checked against the recipe; points of spaces with conditions; planned sweeps."""

import itertools
import random
from dataclasses import replace
from itertools import filterfalse
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.core.config import override
from midmask.errors import UserError
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.sweep.plan import sweep_for
from midmask.sweep.space import Distribution, Rungs, Space, budget, check, complete, grid, load_space, mark_of
from tests.fuzz.running import refused
from tests.support.benchmark.tiny import write_collection
from tests.support.tracked import is_foreign

SPACES = Path(__file__).resolve().parents[2] / "search_spaces"
DECODING = "parameters:\n  objective.decoding: {values: [enhanced, basic]}"
WRONG = {
    "parameters:\n  objective.encoder_mask_ration: {values: [0.1]}": ["encoder_mask_ration", "did you mean"],
    "parameters:\n  objective.encoder_mask_ratio: {values: [1.7]}": ["encoder_mask_ratio = 1.7", "less than"],
    "parameters:\n  objective.encoder_mask_ratio: {low: 0.9, high: 0.1}": ["low = 0.9 is not below high"],
    "trails: 3\nparameters:\n  objective.encoder_mask_ratio: {values: [0.1]}": ["trails", "no such field"],
    f"{DECODING}\n  objective.decoder_layers: {{values: [1], when: {{objective.decodin: basic}}}}": [
        "'objective.decodin'", "did you mean 'objective.decoding'", "parameters.objective.decoder_layers.when",
    ],
    f"{DECODING}\n  objective.decoder_layers: {{values: [1], when: {{objective.decoding: deep}}}}": [
        "objective.decoding is never 'deep'", "['enhanced', 'basic']",
    ],
    f"{DECODING}\n  objective.decoder_layers: {{values: [1, 2]}}": ["exclude each other", "when:"],
    f"marks: {{paper: {{objective.decodin: basic}}}}\n{DECODING}": ["marks.paper", "'objective.decoding'"],
    "[1, 2": ["no YAML can be read"],
    "- a list": ["a mapping of fields is wanted"],
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_space_is_one_line_that_names_the_field(text, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(text if text[0] in "[-" else f"name: wrong\nrecipe: retromae\n{text}\n")
    assert "\n" not in refused(lambda: check(load_space(path), RECIPES["retromae"]()), *WRONG[text])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        *(({"low": 1}, "both low and high"), ({"values": [1], "high": 1}, "both low and high")),
        *(({"low": 2, "high": 2}, "low = 2 is not below high = 2"), ({"label": "x"}, "give values")),
        *(({**more, "log": True}, "a range with low > 0") for more in ({"values": [1]}, {"low": 0, "high": 2})),
        ({"values": [1, 2, 1]}, "only once"),
    ],
)
def test_an_impossible_distribution_is_refused_for_its_own_reason(fields, words):
    with pytest.raises(ValidationError, match=words):
        Distribution(**fields)


def test_extremes_are_the_listed_values_the_ends_and_one_within():
    assert Distribution(values=[1, "a"]).extremes() == (1, "a")
    assert Distribution(values=["a"], low=2, high=10).extremes() == ("a", 2, 10)
    low, inside, high = Distribution(low=2.0, high=10.0).extremes()
    assert (low, high) == (2.0, 10.0) and inside == pytest.approx(5.056) and inside != int(inside)
    assert 1 < Distribution(low=1, high=2.0).extremes()[1] < 2, "a whole number's field must refuse it"


NO_RUNGS = [{"shares": shares} for shares in ([0.0], [1.0], [0.5, 0.5], [0.5, 0.25], [-0.1, 0.5], [0.5, 1.5])]
NO_RUNGS += [{"steps": 0}, {"max_queries": 0}, {"max_queries": 501}, {"reduction": 1}]


@pytest.mark.parametrize("fields", NO_RUNGS)
def test_a_rung_measures_something(fields):
    assert Rungs(shares=[0.001, 0.999], steps=1, max_queries=1, reduction=2).shares == (0.001, 0.999)
    with pytest.raises(ValidationError, match="ascending shares between 0 and 1" if "shares" in fields else None):
        Rungs(**fields)


RATIO = {"objective.decoder_mask_ratio": {"values": [0.5, 0.7]}}


def space(**fields) -> Space:
    return Space.model_validate({"name": "s", "recipe": "retromae", "parameters": RATIO, **fields})


def test_a_trial_is_measured_at_every_share_and_with_a_cost_at_the_end():
    one, two = space(rungs={"shares": [0.1, 0.4]}), space(cost="bytes_per_passage")
    assert one.objectives == ("nDCG@10",)
    assert one.shares == (0.1, 0.4, 1.0) and space(rungs={"shares": []}).shares == (1.0,)
    assert two.objectives == ("nDCG@10", "bytes_per_passage") and two.shares == (1.0,)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parameters": {"a": {"low": 0, "high": 1}}}, "parameters.a: --search grid needs values"),
        ({"cost": "R@10"}, "bytes_per_passage"),
        ({"parameters": {}}, "at least 1 item"),
        ({"trials": 0}, "greater than or equal to 1"),
        ({"marks": {"paper": {"pretrain.steps": 1}}}, r"In marks\.paper"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_for_its_own_reason(fields, words):
    with pytest.raises((ValidationError, UserError), match=words):
        space(**fields)


def test_a_condition_looks_up_and_can_hold():
    above = {"a": {"values": ["x", "y"]}}
    kept = space(parameters={**above, "b": {"values": [1], "when": {"a": "y"}}, "c": {"values": [1], "when": {"b": 1}}})
    assert kept.parameters["b"].when == {"a": ("y",)}
    for below, words in (
        ({"c": "x"}, "stand above it"),
        ({"b": 1}, "stand above it"),
        ({"a": ["x", "z", "w"]}, "never 'z'"),
    ):
        with pytest.raises((ValidationError, UserError), match=words):
            space(parameters={**above, "b": {"values": [1], "when": below}, "c": {"values": ["x"]}})


@pytest.mark.parametrize("path", sorted(filterfalse(is_foreign, SPACES.glob("*.yaml"))), ids=lambda path: path.stem)
def test_every_space_of_the_house_fits_its_recipe(path):
    space = load_space(path)
    recipe = RECIPES[space.recipe]()
    check(space, recipe if space.protocol is None else PROTOCOLS[space.protocol]().on(recipe, "demo"))
    assert len(grid(space)) >= 2


START = b"name: x\nrecipe: retromae\nparameters:\n  objective.encoder_mask_ratio: "
NO_SPACES = {
    "not UTF-8": b"\xff\xfe", "no date": b"a: 2024-13-99", "a date": START + b"{values: [2024-01-01]}",
    "nesting": b"[" * 5000,
    "a large number": START + b"{values: [0x" + b"f" * 5000 + b"]}", "a lone surrogate": b'name: "\\ud800"',
    "a large file": b"a: " + b"x" * 100_000, "an infinite end": START + b"{low: 0, high: .inf}",
}  # fmt: skip


@pytest.mark.parametrize("data", NO_SPACES.values(), ids=NO_SPACES)
def test_a_file_that_is_no_space_is_refused_in_one_line_with_its_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.yaml").write_bytes(data)
    refused(lambda: load_space(tmp_path / "x.yaml"), "x.yaml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    refused(lambda: load_space(tmp_path), str(tmp_path))


ABSENT = object()
DECODER = {
    "objective.decoding": {"values": ["enhanced", "basic"]},
    "objective.decoder_layers": {"values": [1, 2, 3], "when": {"objective.decoding": "basic"}},
    "objective.decoder_mask_ratio": {"values": [0.5, 0.7]},
}


@st.composite
def spaces(draw) -> Space:
    """Two to five parameters of one to three values; some exist only where one or two above have certain values."""
    parameters: dict[str, dict] = {}
    for number in range(draw(st.integers(2, 5))):
        values = list(range(draw(st.integers(1, 3))))
        above = draw(st.lists(st.sampled_from(sorted(parameters)), max_size=2, unique=True)) if parameters else []
        when = {path: draw(st.lists(st.sampled_from(parameters[path]["values"]), min_size=1)) for path in above}
        parameters[f"p.{number}"] = {"values": values, "when": when}
    return space(parameters=parameters)


def filtered_product(space: Space) -> list[dict]:
    """Every assignment of a value or nothing to every parameter, of which those stay where a parameter has a value
    exactly if all its conditions hold.
    """
    paths = list(space.parameters)
    found = []
    for choice in itertools.product(*([*space.parameters[path].values, ABSENT] for path in paths)):
        point = dict(zip(paths, choice, strict=True))
        conditions = {path: space.parameters[path].when.items() for path in paths}
        holds = {path: all(point[above] in own for above, own in conditions[path]) for path in paths}
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
    recipes = [override(RECIPES["retromae"](), point) for point in grid(space(parameters=DECODER))]
    layers = [(recipe.objective.decoding, recipe.objective.decoder_layers) for recipe in recipes]
    assert layers[::2] == [("enhanced", 1), ("basic", 1), ("basic", 2), ("basic", 3)] and len(layers) == 8


def test_what_the_recipe_has_where_a_parameter_does_not_exist_must_be_possible():
    deep = override(RECIPES["retromae"](), {"objective.decoding": "basic", "objective.decoder_layers": 2})
    with pytest.raises(UserError, match=r"decoder_layers = 2 needs decoding = basic"):
        check(space(parameters=DECODER), deep)


def test_a_mark_must_be_a_point():
    path = "objective.decoder_mask_ratio"
    good, bad = ({"paper": {path: value}} for value in (0.5, 0.55))
    of = space(parameters=DECODER, marks=good)
    assert [mark_of(of, point) for point in grid(of)] == ["paper", None] * 4
    with pytest.raises(UserError, match=r"marks\.paper: no point of the space has .*0\.55"):
        check(space(parameters=DECODER, marks=bad), RECIPES["retromae"]())


@pytest.fixture
def options(tmp_path: Path) -> Options:
    given = ["--corpus", write_collection(tmp_path / "words"), "--storage", str(tmp_path / "store")]
    return resolve(parse([*given, "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"], None))


def test_settings_and_flags_reach_the_baselines_but_for_the_methods_own(options):
    settings = {"objective.encoder_mask_ratio": 0.2, "pretrain.steps": 7}
    asked = replace(options, set_fields={"objective.decoding": "basic", "backbone.dropout": "0.1"}, seed=5)
    one = sweep_for(asked, space(settings=settings, baselines=["none", "mlm"]))
    none, mlm = one.baselines
    assert (one.recipe.objective.encoder_mask_ratio, one.recipe.objective.decoding) == (0.2, "basic")
    assert none.objective is None and mlm.objective == RECIPES["mlm"]().objective
    for recipe in (one.recipe, none, mlm):
        assert (recipe.pretrain.steps, recipe.backbone.dropout, recipe.stages[0].train.seed) == (7, 0.1, 5)
        assert recipe.corpus.name == options.corpus


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"measure": "NDCG@10"}, ["'NDCG@10'", "nDCG@10", "evaluation.measures"]),
        ({"settings": {"evaluation.measures": ["RR@10"]}}, ["'nDCG@10'", "(RR@10)"]),
        ({"protocol": "in_bath"}, ["'in_bath'", "did you mean 'in_batch'"]),
        ({"baselines": ["mlmm"]}, ["'mlmm'", "did you mean 'mlm'"]),
        ({"parameters": {"objective.layers": {"values": [1]}}}, ["objective.layers"]),
    ],
)
def test_what_would_fail_later_is_refused_before_anything_starts(options, fields, words):
    refused(lambda: sweep_for(options, space(**fields)), *words)
    assert not Path(options.storage).exists()


def test_a_flag_that_no_trial_would_follow_is_refused(options):
    wrong = replace(options, set_fields={"objective.decoder_mask_ratio": "0.6"})
    refused(lambda: sweep_for(wrong, space()), "--set objective.decoder_mask_ratio=0.6: this sweep varies")
    kept = replace(options, set_fields={"objective.encoder_mask_ratio": "0.2"})
    assert sweep_for(kept, space()).recipe.objective.encoder_mask_ratio == 0.2
