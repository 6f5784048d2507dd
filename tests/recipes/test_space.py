"""Search spaces: read from data, checked against the recipe before anything starts."""

import re
from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.recipes import RECIPES
from midmask.recipes.points import check, grid
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.space import load_space

SPACES = Path(__file__).resolve().parents[2] / "search_spaces"


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_space_of_the_house_fits_its_recipe(path):
    space = load_space(path)
    recipe = RECIPES[space.recipe]()
    check(space, recipe if space.protocol is None else PROTOCOLS[space.protocol]().on(recipe, "demo"))
    assert len(grid(space)) >= 6


def test_the_space_that_the_docs_show_can_be_run(tmp_path):
    (shown,) = re.findall(r"```yaml\n(.*?)```", (SPACES.parent / "docs" / "sweeps.md").read_text(), re.DOTALL)
    (tmp_path / "mine.yaml").write_text(shown)
    space = load_space(tmp_path / "mine.yaml")
    check(space, RECIPES[space.recipe]())
    assert len(grid(space)) == (1 + 3) * 2


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


def test_a_missing_file_names_those_that_are_there(tmp_path):
    (tmp_path / "mine.yaml").write_text("")
    with pytest.raises(UserError, match=r"no such file; in .*: mine\.yaml"):
        load_space(tmp_path / "yours.yaml")
