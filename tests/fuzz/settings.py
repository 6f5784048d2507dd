"""Targets: model folders of three kinds, search spaces, and --set of every field of every recipe."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import safetensors.torch
import torch

from midmask.core.config import flatten, override
from midmask.encoders.backbone import load_backbone
from midmask.encoders.folder import load_bi_encoder, save_bi_encoder
from midmask.encoders.model_settings import read_facts
from midmask.encoders.precision import SWITCH
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.estimate import as_text, estimate, refuse_impossible
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.recipes import RECIPES
from midmask.store.place import Place
from midmask.sweep.space import budget, check, grid, load_space
from midmask.text.vocabulary import Vocabulary
from tests.fuzz.mutating import TEXTS, VALUES, mutate_bytes, mutate_text
from tests.fuzz.running import Case, Outcome
from tests.support.benchmark.tiny import Unread
from tests.support.corpora.collections import write_beir
from tests.support.encoders.models import random_model, write_tokenizer
from tests.support.tracked import is_foreign

OTHERS = [
    *("", "abc", "float16", "cls", "max", "gpt2", "roberta", "relu", "../x", "/etc", "\0", "os.system", "x.Pooling"),
    *(None, False, 0, 1, -1, 3, 7, 41, 64, 32.0, 0.5, 1e400, 10**9, 10**20, [], [1], ["X"], {}, {"a": 1}, {"width": 0}),
]
"""Values that a field of a folder's JSON should not have, or could have."""

INDICES = ["null", "{bad", '{"weight_map": {"a": 5}}', '{"weight_map": {"a": "../x.safetensors"}, "metadata": {}}']
SPACES = Path(__file__).resolve().parents[2] / "search_spaces"


def targets(root: Path) -> dict[str, Case]:
    write_beir(root / "small")
    small = {"corpus.name": f"beir:{root}/small"}
    recipes = {name: override(RECIPES[name](), small) for name in RECIPES}
    seeds = {path.name: path.read_bytes() for path in sorted(SPACES.glob("*.yaml")) if not is_foreign(path)}
    os.environ[SWITCH] = "0"
    _price(recipes["retromae"], root)  # loads the libraries here, so that no case's time and memory hold their import
    return {**_models(root), "search spaces": partial(_space, seeds, recipes), "--set": partial(_set, recipes, root)}


def _space(seeds: dict[str, bytes], recipes: dict[str, Recipe], rng: random.Random, folder: Path) -> Outcome:
    (folder / "x.yaml").write_bytes(mutate_text(rng, seeds[rng.choice(sorted(seeds))]))
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


def _models(root: Path) -> dict[str, Case]:
    """Folders with a projection, as midmask writes them and without what it alone knows, and of a bare model."""
    plain, tokenizer = root / "plain", write_tokenizer(root / "tokenizer", "bert")
    random_model("bert").save_pretrained(plain)
    shutil.copytree(tokenizer, plain, dirs_exist_ok=True)
    backbone = load_backbone(plain, dropout=0.0)
    backbone.represent_as(Representation(dense="mean", width=8, normalise=True), seed=0)
    own = root / "own"
    own.mkdir()
    save_bi_encoder(backbone, own, tokenizer, max_length=24)
    foreign = root / "foreign"
    shutil.copytree(own, foreign)
    (foreign / "midmask.json").unlink()
    found = {"plain": plain, "midmask": own, "sentence-transformers": foreign}
    return {f"model folders, {name}": partial(_model, place) for name, place in found.items()}


def _model(seed: Path, rng: random.Random, folder: Path) -> Outcome:
    place = folder / "model"
    shutil.copytree(seed, place)
    _change(rng, place)
    for read in (read_facts, Vocabulary.of):
        with suppress(UserError):  # other readers of the folder may refuse it too
            read(place)
    loaded = load_bi_encoder(place, dropout=0.0)
    assert all(torch.isfinite(weight).all() for weight in loaded.model.state_dict().values()), "weights are not finite"
    return "succeeded"


def _change(rng: random.Random, place: Path) -> None:
    kind, files = rng.random(), sorted(path for path in place.rglob("*") if path.is_file())
    settings = [path for path in files if path.suffix == ".json" and path.stem not in ("tokenizer", "vocab")]
    if kind < 0.45:
        path = rng.choice(settings)
        held = json.loads(path.read_text())
        chosen = rng.choice(held) if isinstance(held, list) else held
        chosen[rng.choice(sorted(chosen))] = rng.choice(OTHERS)
        path.write_text(json.dumps(held))
    elif kind < 0.7:
        path = rng.choice([path for path in files if path.suffix in (".json", ".txt")])
        path.write_bytes(mutate_text(rng, path.read_bytes()))
    elif kind < 0.95:
        _change_weights(rng, rng.choice([path for path in files if path.suffix == ".safetensors"]))
    else:
        rng.choice(files).unlink()


def _change_weights(rng: random.Random, path: Path) -> None:
    kind = rng.choice(["bytes", "index", "pickle", "value", "shape", "missing"])
    if kind == "bytes":
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        return
    weights = safetensors.torch.load_file(path)
    path.unlink()
    if kind == "index":
        Path(f"{path}.index.json").write_text(rng.choice(INDICES))
        return
    if kind == "pickle":
        path.with_name("pytorch_model.bin").write_bytes(rng.choice([b"", b"abc", b"PK\3\4abc", b"\x80\x02}q\0."]))
        return
    name = rng.choice(sorted(weights))
    own = weights.pop(name)
    if kind == "value":
        own.view(-1)[0] = rng.choice([float("nan"), float("inf"), 1e38])
    if kind != "missing":
        others = [torch.zeros(3), torch.zeros(()), own[:-1].clone(), own.to(torch.int32)]
        weights[name] = own if kind == "value" else rng.choice(others)
    safetensors.torch.save_file(weights, path, metadata=rng.choice([{"format": "pt"}, {"format": "x"}, None]))
