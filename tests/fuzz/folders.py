"""Targets: model folders of transformers, sentence-transformers and midmask."""

import json
import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from midmask.encoders.backbone import load_backbone
from midmask.encoders.folder import load_bi_encoder, save_bi_encoder
from midmask.encoders.model_settings import read_facts, view_widths
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary
from tests.fuzz.mutating import mutate_bytes, mutate_text
from tests.fuzz.running import Case, Outcome
from tests.support.encoders.models import random_model
from tests.support.encoders.tokenizers import write_tokenizer

OTHERS = [
    *("", "abc", "float16", "cls", "max", "gpt2", "roberta", "relu", "../x", "/etc", "\0", "os.system", "x.Pooling"),
    *(None, False, 0, 1, -1, 3, 7, 41, 64, 32.0, 0.5, 1e400, 10**9, 10**20, [], [1], ["X"], {}, {"a": 1}, {"width": 0}),
]
"""Values that a field of a folder's JSON should not have, or could have."""

INDICES = [
    "null",
    "{}",
    "{bad",
    '{"weight_map": {"a": 5}}',
    '{"weight_map": {"a": "../x.safetensors"}, "metadata": {}}',
]


def targets(root: Path) -> dict[str, Case]:
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
    for read in (read_facts, view_widths, Vocabulary.of):
        _tolerated(read, place)
    loaded = load_bi_encoder(place, dropout=0.0)
    assert all(torch.isfinite(weight).all() for weight in loaded.model.state_dict().values()), "weights are not finite"
    return "succeeded"


def _tolerated(read: Any, place: Path) -> None:
    """Other readers of the folder may refuse it too."""
    try:
        read(place)
    except UserError:
        return


def _change(rng: random.Random, place: Path) -> None:
    kind = rng.random()
    names = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    settings = [name for name in names if name.endswith(".json") and name not in ("tokenizer.json", "vocab.json")]
    if kind < 0.45:
        path = place / rng.choice(settings)
        held = json.loads(path.read_text())
        chosen = rng.choice(held) if isinstance(held, list) else held
        chosen[rng.choice(sorted(chosen))] = rng.choice(OTHERS)
        path.write_text(json.dumps(held))
    elif kind < 0.7:
        path = place / rng.choice([name for name in names if name.endswith((".json", ".txt"))])
        path.write_bytes(mutate_text(rng, path.read_bytes()))
    elif kind < 0.95:
        _change_weights(rng, rng.choice([place / one for one in names if one.endswith(".safetensors")]))
    else:
        (place / rng.choice(names)).unlink()


def _change_weights(rng: random.Random, path: Path) -> None:
    kind = rng.choice(["bytes", "index", "pickle", "value", "shape", "missing"])
    if kind == "bytes":
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        return
    weights = safetensors.torch.load_file(path)
    name = rng.choice(sorted(weights))
    if kind == "index":
        Path(f"{path}.index.json").write_text(rng.choice(INDICES))
    elif kind == "pickle":
        path.with_name("pytorch_model.bin").write_bytes(rng.choice([b"", b"abc", b"PK\3\4abc", b"\x80\x02}q\0."]))
    elif kind == "value":
        weights[name].view(-1)[0] = rng.choice([float("nan"), float("inf"), 1e38])
    elif kind == "shape":
        others = [torch.zeros(3), torch.zeros(()), weights[name][:-1].clone(), weights[name].to(torch.int32)]
        weights[name] = rng.choice(others)
    else:
        del weights[name]
    path.unlink()
    if kind not in ("index", "pickle"):
        safetensors.torch.save_file(weights, path, metadata=rng.choice([{"format": "pt"}, {"format": "x"}, None]))
