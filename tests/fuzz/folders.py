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
from midmask.encoders.cross_encoder import read_cross_encoder
from midmask.encoders.folder import load_bi_encoder, save_bi_encoder
from midmask.encoders.model_settings import read_facts, view_widths
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.vocabulary import Vocabulary
from tests.fuzz.mutating import mutate_bytes, mutate_text
from tests.fuzz.running import Case, Outcome
from tests.support.encoders.models import random_model
from tests.support.encoders.tokenizers import write_tokenizer

SETTINGS: list[tuple[str, str, list[Any]]] = [
    ("config.json", "hidden_size", ["abc", 0, -1, 31, 64, 10**9, None, 32.0]),
    ("config.json", "num_attention_heads", [0, 3, "4", None, -1]),
    ("config.json", "num_hidden_layers", [0, 1, 3, -1, "2", None]),
    ("config.json", "vocab_size", [0, 39, 41, 10**9, "x", None]),
    ("config.json", "hidden_act", ["nope", 5, None, "relu"]),
    ("config.json", "model_type", ["nope", "gpt2", 5, None, "t5", "roberta", "distilbert"]),
    ("config.json", "max_position_embeddings", ["x", 0, -5, 10**9, 8]),
    ("config.json", "layer_norm_eps", ["x", -1, None, 1e400]),
    ("config.json", "pad_token_id", [1000, -1, "x", None]),
    ("config.json", "dtype", ["floaty", 5, "float16", None]),
    ("config.json", "architectures", [5, ["X"], None]),
    ("config.json", "auto_map", [{"AutoConfig": "x.Y"}, 5]),
    ("config.json", "quantization_config", [{"a": 1}, 5]),
    ("midmask.json", "format", ["x", 2, 0, None]),
    ("midmask.json", "representation", [None, 5, {"dense": "max"}, {"width": 0}, {"dense": None}]),
    ("midmask.json", "passage_length", ["x", 0, 10**20, None]),
    ("modules.json", "path", [5, "../x", "/etc", "\0", "9_None"]),
    ("modules.json", "type", [5, "", "os.system", "sentence_transformers.models.Dense", "x.Pooling", None]),
    ("1_Pooling/config.json", "pooling_mode", [5, "max", [1], None, ["cls", "mean"], {"a": 1}]),
    ("1_Pooling/config.json", "pooling_mode_cls_token", [False, "x", None]),
    ("2_Dense/config.json", "out_features", ["x", 0, -1, 10**20, 7, None]),
    ("2_Dense/config.json", "activation_function", [5, None, "torch.nn.modules.activation.Tanh"]),
    ("config_sentence_transformers.json", "prompts", [5, [1], {"query": 5}, {"query": "q: "}]),
    ("config_sentence_transformers.json", "similarity_fn_name", [[1], "euclidean", None, "cosine"]),
    ("config_sentence_transformers.json", "default_prompt_name", [[1], 5, "query"]),
    ("sentence_bert_config.json", "max_seq_length", ["x", [1], -5, 0.5, 1e400, 10**30, None]),
    ("sentence_bert_config.json", "do_lower_case", ["x", 1]),
    ("tokenizer_config.json", "model_max_length", ["x", -1, 1e400, None]),
    ("tokenizer_config.json", "tokenizer_class", ["Nope", 5, None]),
    ("tokenizer_config.json", "mask_token", [None, 5, "nope"]),
]  # fmt: skip
"""File, field, and values that it should not have, or could have."""

INDICES = [
    *("null", "{}", "[]", "{bad", '{"weight_map": 5}', '{"weight_map": {"a": 5}}', '{"metadata": {"total_size": 5}}'),
    *('{"weight_map": {}, "metadata": {}}', '{"weight_map": {"a": "../x.safetensors"}, "metadata": {}}'),
]


def targets(root: Path) -> dict[str, Case]:
    """Folders with a projection, as midmask writes them and without what it alone knows, and of a cross-encoder."""
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
        if rng.random() < 0.5:
            _tolerated(read, place)
    if rng.random() < 0.1:
        _tolerated(read_cross_encoder, place)
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
    if kind < 0.45:
        settings = [one for one in SETTINGS if one[0] in names]
        name, field, values = rng.choice(settings)
        held = json.loads((place / name).read_text())
        chosen = rng.choice(held) if isinstance(held, list) else held
        chosen[field] = rng.choice(values)
        (place / name).write_text(json.dumps(held))
    elif kind < 0.7:
        name = rng.choice([one for one in names if one.endswith((".json", ".txt"))])
        (place / name).write_bytes(mutate_text(rng, (place / name).read_bytes()))
    elif kind < 0.95:
        _change_weights(rng, rng.choice([place / one for one in names if one.endswith(".safetensors")]))
    else:
        (place / rng.choice(names)).unlink()


def _change_weights(rng: random.Random, path: Path) -> None:
    kind = rng.randrange(6)
    if kind == 0:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        return
    if kind == 1:
        path.unlink()
        Path(f"{path}.index.json").write_text(rng.choice(INDICES))
        return
    if kind == 2:
        path.unlink()
        path.with_name("pytorch_model.bin").write_bytes(rng.choice([b"", b"abc", b"PK\3\4abc", b"\x80\x02}q\0."]))
        return
    weights = safetensors.torch.load_file(path)
    name = rng.choice(sorted(weights))
    if kind == 3:
        weights[name] = weights[name].clone()
        weights[name].view(-1)[0] = rng.choice([float("nan"), float("inf"), 1e38])
    elif kind == 4:
        weights[name] = rng.choice(
            [torch.zeros(3), torch.zeros(()), weights[name][:-1].clone(), weights[name].to(torch.int32)]
        )
    else:
        del weights[name]
    safetensors.torch.save_file(weights, path, metadata=rng.choice([{"format": "pt"}, {"format": "x"}, None]))
