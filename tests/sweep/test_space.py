"""Search spaces: read from data, checked against the recipe before anything starts."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from midmask.errors import UserError
from midmask.recipes import RECIPES
from midmask.sweep.points import check, grid
from midmask.sweep.space import Distribution, Rungs, Space, Target, load_space

SPACES = Path(__file__).resolve().parents[2] / "search_spaces"


def test_the_grid_is_the_product_with_the_last_parameter_fastest():
    points = grid(load_space(SPACES / "mask_ratio.yaml"))
    encoder, decoder = "objective.encoder_mask_ratio", "objective.decoder_mask_ratio"
    assert [(point[encoder], point[decoder]) for point in points] == [
        (0.15, 0.15), (0.15, 0.5), (0.15, 0.9),
        (0.3, 0.15), (0.3, 0.5), (0.3, 0.9),
        (0.9, 0.15), (0.9, 0.5), (0.9, 0.9),
    ]  # fmt: skip


DECODING = "parameters:\n  objective.decoding: {values: [enhanced, basic]}"
WRONG = {
    "parameters:\n  objective.encoder_mask_ration: {values: [0.1]}": ["encoder_mask_ration", "did you mean"],
    "parameters:\n  objective.encoder_mask_ratio: {values: [1.7]}": ["encoder_mask_ratio = 1.7", "less than"],
    "parameters:\n  objective.encoder_mask_ratio: {}": ["give values"],
    "parameters:\n  objective.encoder_mask_ratio: {low: 0.9, high: 0.1}": ["low = 0.9 is not below high"],
    "parameters:\n  objective.encoder_mask_ratio: {low: 0.1, high: 0.9}": ["grid needs values"],
    "parameters: {}": ["parameters"],
    "trails: 3\nparameters:\n  objective.encoder_mask_ratio: {values: [0.1]}": ["trails", "no such field"],
    "rungs: {shares: [0.5, 0.25]}\nparameters:\n  objective.encoder_mask_ratio: {values: [0.1]}": ["ascending shares"],
    "parameters:\n  objective.decoder_layers: {values: [1], when: {objective.decodin: basic}}": ["stand above"],
    f"{DECODING}\n  objective.decoder_layers: {{values: [1], when: {{objective.decodin: basic}}}}": [
        "'objective.decodin'", "did you mean 'objective.decoding'", "parameters.objective.decoder_layers.when",
    ],
    f"{DECODING}\n  objective.decoder_layers: {{values: [1], when: {{objective.decoding: deep}}}}": [
        "objective.decoding is never 'deep'", "['enhanced', 'basic']",
    ],
    f"{DECODING}\n  objective.decoder_layers: {{values: [1, 2]}}": ["exclude each other", "when:"],
    f"search: nsga2\n{DECODING}": ["nsga2", "two or more objectives"],
    f"objectives: [{{measure: nDCG@10, mode: max}}, {{measure: nDCG@10, mode: min}}]\n{DECODING}": ["only once"],
    f"objectives: [{{measure: bytes_per_passage, mode: min}}]\n{DECODING}": ["first must be a retrieval measure"],
    f"measure: RR@10\nobjectives: [{{measure: nDCG@10, mode: max}}]\n{DECODING}": ["in place of measure and mode"],
    f"marks: {{paper: {{objective.decodin: basic}}}}\n{DECODING}": ["marks.paper", "'objective.decoding'"],
    "parameters:\n  objective.encoder_mask_ratio: {values: [0.3, 0.3]}": ["only once"],
    "parameters:\n  objective.encoder_mask_ratio: {values: [0.3], step: 1}": ["step are of a range"],
    "[1, 2": ["not YAML"],
    "- a list": ["a mapping of fields is wanted"],
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_space_is_one_line_that_names_the_field(text, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(text if text[0] in "[-" else f"name: wrong\nrecipe: retromae\n{text}\n")
    with pytest.raises(UserError) as caught:
        check(load_space(path), RECIPES["retromae"]())
    message = str(caught.value)
    assert "\n" not in message
    for word in WRONG[text]:
        assert word in message


def distribution(**fields) -> Distribution:
    return Distribution(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"low": 1}, "both low and high"),
        ({"high": 1}, "both low and high"),
        ({"values": [1], "high": 1}, "both low and high"),
        ({"low": 2, "high": 2}, "low = 2 is not below high = 2"),
        ({"low": 3, "high": 2}, "low = 3 is not below high = 2"),
        ({}, "give values"),
        ({"label": "x"}, "give values"),
        ({"values": [1, 2, 1]}, "only once"),
        ({"values": [1], "log": True}, "log and step are of a range"),
        ({"values": [1], "step": 1}, "log and step are of a range"),
        ({"low": 0, "high": 2, "log": True}, "needs low > 0"),
        ({"low": -1, "high": 2, "log": True}, "needs low > 0"),
        ({"low": 1, "high": 8, "log": True, "step": 2}, "only whole numbers are stepped"),
        ({"low": 1, "high": 8.5, "step": 1}, "are whole numbers"),
        ({"low": 0.5, "high": 8, "step": 1}, "are whole numbers"),
        ({"low": 1, "high": 8, "step": 0.5}, "are whole numbers"),
        ({"low": 1, "high": 8, "step": 0}, "greater than 0"),
        ({"low": 1, "high": 8, "step": -1}, "greater than 0"),
    ],
)
def test_an_impossible_distribution_is_refused_for_its_own_reason(fields, words):
    with pytest.raises(ValidationError, match=words):
        distribution(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"values": [1, 1.0, True, "1"]},
        {"values": [None]},
        {"low": 0, "high": 0.1},
        {"low": -3, "high": -2},
        {"low": 0.1, "high": 2, "log": True},
        {"low": 1, "high": 8, "log": True, "step": 1},
        {"low": 0, "high": 9, "step": 3},
        {"values": [5], "low": 1, "high": 8, "step": 2},
    ],
)
def test_what_is_possible_is_taken_as_it_is(fields):
    found = distribution(**fields)
    assert {name: getattr(found, name) for name in fields} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    assert found.when == {} and distribution(values=[1]).log is False


def test_extremes_are_the_listed_values_the_ends_and_one_within():
    assert distribution(values=[1, "a"]).extremes() == (1, "a")
    assert distribution(values=["a"], low=2, high=10, step=4).extremes() == ("a", 2, 10)
    low, inside, high = distribution(low=2.0, high=10.0).extremes()
    assert (low, high) == (2.0, 10.0) and inside == pytest.approx(5.056) and inside != int(inside)
    assert 1 < distribution(low=1, high=2).extremes()[1] < 2, (
        "no whole number, which a whole number's field must refuse"
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"values": [1]}, True),
        ({"values": [1, 2]}, False),
        ({"low": 1, "high": 2}, False),
        ({"values": [1], "low": 1, "high": 2}, False),
    ],
)
def test_only_one_value_and_no_range_is_constant(fields, expected):
    assert distribution(**fields).is_constant is expected


def test_a_condition_of_one_value_is_a_list_of_one():
    found = distribution(values=[1], when={"a": "x", "b": ["x", "y"], "c": ("z",), "d": None})
    assert found.when == {"a": ("x",), "b": ("x", "y"), "c": ("z",), "d": (None,)}
    with pytest.raises(ValidationError, match="when"):
        distribution(values=[1], when=["a"])


@pytest.mark.parametrize("shares", [[0.0], [1.0], [0.5, 0.5], [0.5, 0.25], [-0.1, 0.5], [0.5, 1.5]])
def test_shares_that_are_no_ascending_prefixes_are_refused(shares):
    with pytest.raises(ValidationError, match="ascending shares between 0 and 1"):
        Rungs(shares=shares)


@pytest.mark.parametrize("shares", [[], [0.5], [0.001, 0.999]])
def test_ascending_prefixes_are_taken(shares):
    assert Rungs(shares=shares).shares == tuple(shares)


@pytest.mark.parametrize("fields", [{"steps": 0}, {"max_queries": 0}, {"max_queries": 501}, {"reduction": 1}])
def test_a_rung_measures_something(fields):
    assert (Rungs().steps, Rungs().max_queries, Rungs().reduction, Rungs().prune) == (40, 500, 2, True)
    assert Rungs(steps=1, max_queries=1, reduction=2).max_queries == 1
    with pytest.raises(ValidationError):
        Rungs(**fields)


RATIO = {"objective.encoder_mask_ratio": {"values": [0.3, 0.5]}}
GAIN, SIZE = {"measure": "nDCG@10", "mode": "max"}, {"measure": "bytes_per_passage", "mode": "min"}


def space(**fields) -> Space:
    return Space.model_validate({"name": "s", "recipe": "retromae", "parameters": RATIO, **fields})


def test_one_objective_is_measured_at_every_share_and_several_at_the_end():
    one, two = space(rungs={"shares": [0.1, 0.4]}), space(objectives=[GAIN, SIZE])
    assert one.targets == (Target(measure="nDCG@10", mode="max"),) and not one.has_several_objectives
    assert one.shares == (0.1, 0.4, 1.0) and space(rungs={"shares": []}).shares == (1.0,)
    assert [each.measure for each in two.targets] == ["nDCG@10", "bytes_per_passage"]
    assert two.has_several_objectives and two.shares == (1.0,)
    assert not space(objectives=[GAIN]).has_several_objectives
    assert space(measure="RR@10", mode="min").targets == (Target(measure="RR@10", mode="min"),)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parameters": {"a": {"low": 0, "high": 1}}}, "parameters.a: --search grid needs values"),
        ({"parameters": {**RATIO, "a": {"low": 0, "high": 1}}}, "parameters.a: --search grid needs values"),
        ({"search": "nsga2"}, "two or more objectives"),
        ({"search": "nsga2", "objectives": [GAIN]}, "two or more objectives"),
        ({"objectives": [GAIN], "measure": "RR@10"}, "in place of measure and mode"),
        ({"objectives": [GAIN], "mode": "min"}, "in place of measure and mode"),
        ({"objectives": [GAIN, SIZE, SIZE]}, "each measure only once"),
        ({"objectives": [SIZE, GAIN]}, "the first must be a retrieval measure such as nDCG@10, not bytes_per_passage"),
        ({"measure": "train_seconds"}, "the first must be a retrieval measure"),
        ({"parameters": {}}, "at least 1 item"),
        ({"seeds": []}, "at least 1 item"),
        ({"trials": 0}, "greater than or equal to 1"),
        ({"name": "a b"}, "pattern"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_for_its_own_reason(fields, words):
    with pytest.raises((ValidationError, UserError), match=words):
        space(**fields)


def test_spaces_that_can_be_searched_are_taken():
    assert space(search="tpe", parameters={"a": {"low": 0, "high": 1}}).trials == 9
    assert space(search="nsga2", objectives=[GAIN, SIZE]).search == "nsga2"
    assert space(trials=1).trials == 1 and space().baselines == ("none", "mlm") and space().seeds == (0, 1, 2)
    assert space(objectives=[{**GAIN, "mode": "min"}, SIZE]).targets[0].mode == "min"


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


def test_marks_name_parameters():
    assert space(marks={"paper": {"objective.encoder_mask_ratio": 0.3}}).marks.keys() == {"paper"}
    with pytest.raises((ValidationError, UserError), match=r"In marks\.paper"):
        space(marks={"paper": {"objective.encoder_mask_ratio": 0.3, "pretrain.steps": 1}})
