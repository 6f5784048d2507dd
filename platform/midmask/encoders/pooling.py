"""From hidden states to one vector per text, and the folder that makes other libraries do the same."""

import json
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from midmask.encoders.backbone import Backbone, Side, quiet_transformers
from midmask.vocabulary import load_tokenizer

NORMALISE = "sentence_transformers.models.Normalize"


def cls_vectors(
    backbone: Backbone, ids_BL: Tensor, lengths_B: Tensor, *, normalise: bool = False, side: Side = "passage"
) -> Tensor:
    """The last hidden state of the first token, [B, D]; of length 1 if `normalise`."""
    vectors_BD = backbone.hidden(ids_BL, lengths_B, side)[:, 0]
    return F.normalize(vectors_BD, dim=-1) if normalise else vectors_BD


def save_bi_encoder(
    backbone: Backbone, folder: Path, tokenizer_folder: Path, *, max_length: int, normalise: bool
) -> None:
    """Writes a folder that loads in transformers.AutoModel and in sentence_transformers.SentenceTransformer.

    Args:
        max_length: tokens of the longest text, special tokens included; longer ones are cut by SentenceTransformer.
        normalise: whether SentenceTransformer scales the vectors to length 1.
    """
    with quiet_transformers():
        backbone.encoder.save_pretrained(folder)
    load_tokenizer(tokenizer_folder).save_pretrained(folder)
    modules = [
        ("", "sentence_transformers.models.Transformer"),
        ("1_Pooling", "sentence_transformers.models.Pooling"),
        *([("2_Normalize", NORMALISE)] if normalise else []),
    ]
    _write(
        folder / "modules.json", [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(modules)]
    )
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    similarity = {"model_type": "SentenceTransformer", "prompts": {}, "similarity_fn_name": "dot"}
    _write(folder / "config_sentence_transformers.json", similarity)
    pooling = {"word_embedding_dimension": backbone.width, "pooling_mode_cls_token": True}
    pooling |= {f"pooling_mode_{name}": False for name in ("mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}
    _write(folder / "1_Pooling" / "config.json", pooling)
    if normalise:
        (folder / "2_Normalize").mkdir(exist_ok=True)


def is_normalised(folder: Path) -> bool:
    """Whether a folder of `save_bi_encoder` asks for vectors of length 1."""
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    return any(module["type"].endswith(".Normalize") for module in modules)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
