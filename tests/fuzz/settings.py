"""Targets: search spaces, and --set of every field of every recipe."""

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from midmask.artifact import Place
from midmask.encoders.precision import SWITCH
from midmask.estimate import as_text, estimate, refuse_impossible
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.identity import flatten, override
from midmask.recipes import RECIPES
from midmask.sweep.points import budget, check, grid
from midmask.sweep.space import load_space
from tests.fuzz.mutating import TEXTS, VALUES, mutate_text
from tests.fuzz.running import Case, Outcome
from tests.support.corpora.collections import write_beir
from tests.support.tracked import is_foreign
from tests.support.unread import Unread

SPACES = Path(__file__).resolve().parents[2] / "search_spaces"
YAML = ["*a", "&a [x]", "!!int abc", "2024-13-99", "2024-01-01", ".inf", ".nan", "1e400", "0x" + "f" * 400, "1:59:59",
        "!!python/object:os.system x", "!!binary abc", "!!set {a}", "{[a]: b}", "<<: 5", "~", "yes", "? a", "- - - a",
        "[[[[[[[[", "{a: {a: {a: ", "|", ">", "%", "@", "`", '"\\ud800"', "low: 1", "values: []", "values: [1, 1.0]",
        "{low: 1, high: 0}", "{low: 0, high: 1, log: true}", "{values: [1], when: {x: 1}}", "9" * 5000]  # fmt: skip


def targets(root: Path) -> dict[str, Case]:
    write_beir(root / "small")
    small = {"corpus.name": f"beir:{root}/small"}
    recipes = {name: override(RECIPES[name](), small) for name in RECIPES}
    seeds = {path.name: path.read_bytes() for path in sorted(SPACES.glob("*.yaml")) if not is_foreign(path)}
    os.environ[SWITCH] = "0"  # the probe of a plan takes a second
    _price(recipes["retromae"], root)  # loads the libraries here, so that no case's time and memory hold their import
    return {
        "search spaces": partial(_space, seeds, recipes),
        "--set": partial(_set, recipes, root),
    }


def _space(seeds: dict[str, bytes], recipes: dict[str, Recipe], rng: random.Random, folder: Path) -> Outcome:
    data = seeds[rng.choice(sorted(seeds))]
    if rng.random() < 0.6:
        lines = data.split(b"\n")
        place = rng.randrange(len(lines))
        key, colon, _ = lines[place].partition(b": ")
        lines[place] = key + colon + b" " + rng.choice(YAML).encode()
        data = b"\n".join(lines)
    else:
        data = mutate_text(rng, data)
    (folder / "x.yaml").write_bytes(data)
    space = load_space(folder / "x.yaml")
    recipe = recipes[space.recipe] if space.recipe in recipes else RECIPES[space.recipe]()
    check(space, override(recipe, dict(space.settings)))
    if space.search == "grid":
        assert budget(space) == len(grid(space))
    return "succeeded"


def _set(recipes: dict[str, Recipe], root: Path, rng: random.Random, folder: Path) -> Outcome:
    """The fields are changed, checked, planned and priced, as --dry-run does; places that are named lie nowhere."""
    recipe = recipes[rng.choice(sorted(recipes))]
    changed = override(recipe, dict(_changes(rng, recipe)))
    changed.check()
    _price(changed, root)
    return "succeeded"


def _price(recipe: Recipe, root: Path) -> None:
    priced = estimate([plan(recipe, Unread()).evaluation(recipe.evaluation)], Place(str(root / "empty store")))
    as_text(priced)
    refuse_impossible(priced)


def _changes(rng: random.Random, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """One to three fields, each with a value for another field, a number near its own, or a nasty one."""
    fields = flatten(recipe)
    for _ in range(rng.choice([1, 1, 2, 3])):
        path = rng.choice(sorted(fields))
        own = fields[path]
        kind = rng.random()
        if kind < 0.25 and isinstance(own, int | float) and not isinstance(own, bool):
            yield path, repr(rng.choice([own * 2, own + 1, own - 1, -own, own / 2, own * 10**6, 10**9, 2**40, 1e-9]))
        elif kind < 0.5:
            yield path, str(fields[rng.choice(sorted(fields))])
        elif kind < 0.6:
            yield path.rpartition(".")[0] or path, rng.choice(VALUES)
        elif kind < 0.65:
            yield path + rng.choice(["x", ".x", ".0", "."]), "1"
        else:
            yield path, rng.choice([*TEXTS, *VALUES, "\udcff"])
