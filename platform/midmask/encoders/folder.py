"""The folder of a bi-encoder: what transformers, sentence-transformers and midmask read alike."""

import copy
import json
from pathlib import Path
from typing import Any

from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import put_query_expert
from midmask.encoders.reading import quiet_transformers
from midmask.vocabulary import load_tokenizer

TRANSFORMER = "sentence_transformers.models.Transformer"
NORMALISE = "sentence_transformers.models.Normalize"

ROUTES = {
    "types": {"query": TRANSFORMER, ".": TRANSFORMER},
    "structure": {"query": ["query"], "document": ["."]},
    "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
}
"""Queries go through the model in `query/`, documents through the one in the folder itself."""


def save_bi_encoder(
    backbone: Backbone, folder: Path, tokenizer_folder: Path, *, max_length: int, normalise: bool
) -> None:
    """Writes a folder that loads in transformers.AutoModel and in sentence_transformers.SentenceTransformer.

    With experts, the folder itself is the passages' encoder; the queries' is in `query/`, whole, for `encode_query` of
    SentenceTransformer, and in `experts.safetensors`, for midmask. Without a task, SentenceTransformer takes the
    passages'.

    Args:
        max_length: tokens of the longest text, special tokens included; longer ones are cut by SentenceTransformer.
        normalise: whether SentenceTransformer scales the vectors to length 1.
    """
    _write_transformer(backbone.encoder, folder, tokenizer_folder, max_length)
    first = TRANSFORMER
    if backbone.experts is not None:
        backbone.experts.save(folder)
        queries = copy.deepcopy(backbone.encoder)
        put_query_expert(queries, folder)
        _write_transformer(queries, folder / "query", tokenizer_folder, max_length)
        _write(folder / "router_config.json", ROUTES)
        first = "sentence_transformers.models.Router"
    modules = [
        ("", first),
        ("1_Pooling", "sentence_transformers.models.Pooling"),
        *([("2_Normalize", NORMALISE)] if normalise else []),
    ]
    _write(
        folder / "modules.json", [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(modules)]
    )
    similarity = {"model_type": "SentenceTransformer", "prompts": {}, "similarity_fn_name": "dot"}
    _write(folder / "config_sentence_transformers.json", similarity)
    pooling = {"word_embedding_dimension": backbone.width, "pooling_mode_cls_token": True}
    pooling |= {f"pooling_mode_{name}": False for name in ("mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}
    _write(folder / "1_Pooling" / "config.json", pooling)
    if normalise:
        (folder / "2_Normalize").mkdir(exist_ok=True)


def _write_transformer(encoder: Any, folder: Path, tokenizer_folder: Path, max_length: int) -> None:
    """A Hugging Face folder that is also a module of sentence-transformers."""
    with quiet_transformers():
        encoder.save_pretrained(folder)
    load_tokenizer(tokenizer_folder).save_pretrained(folder)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})


def is_normalised(folder: Path) -> bool:
    """Whether a folder of `save_bi_encoder` asks for vectors of length 1."""
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    return any(module["type"].endswith(".Normalize") for module in modules)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
