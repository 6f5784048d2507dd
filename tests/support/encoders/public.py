"""Models and folders of sentence-transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from midmask.encoders.backbone import Backbone
from midmask.encoders.representation import Side, TextVectors
from midmask.text.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS


def opened(folder: Path, kind: str = "SentenceTransformer") -> Any:
    """The folder in sentence-transformers, from the disk alone."""
    import sentence_transformers

    return getattr(sentence_transformers, kind)(str(folder), device="cpu", local_files_only=True)


def vectors_of(model: Any) -> Tensor:
    found: Tensor = model.encode(TEXTS, convert_to_tensor=True)
    return found.to_dense() if found.is_sparse else found.clone()


def dense_model(base: Path, *, width: int | None = None, normalise: bool = False, **more: Any) -> Any:
    """Pooled vectors, compared by dot product unless `similarity_fn_name` says otherwise; `pooling_mode` and
    `include_prompt` are Pooling's.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(0)
    own = {name: more.pop(name) for name in ("pooling_mode", "include_prompt") if name in more}
    modules = [Transformer(str(base), max_seq_length=12), Pooling(32, **{"pooling_mode": "cls", **own})]
    modules += [] if width is None else [Dense(32, width, bias=False, activation_function=nn.Identity())]
    modules += [Normalize()] if normalise else []
    return SentenceTransformer(modules=modules, device="cpu", **{"similarity_fn_name": "dot", **more})


def sparse_model(base: Path, *, strategy: str = "max", **more: Any) -> Any:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    transformer = Transformer(str(base), transformer_task="fill-mask", max_seq_length=12)
    return SparseEncoder(modules=[transformer, SpladePooling(strategy)], device="cpu", **more)


def change(file: str, **values: Any) -> Callable[[Path], None]:
    """Sets values in a JSON file of a folder."""

    def changed(folder: Path) -> None:
        (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text()), **values}))

    return changed


def settings(**values: Any) -> Callable[[Path], None]:
    return change("config_sentence_transformers.json", **values)


def transformer(**values: Any) -> Callable[[Path], None]:
    return change("sentence_bert_config.json", **values)


def tokenizer(**values: Any) -> Callable[[Path], None]:
    return change("tokenizer_config.json", **values)


def change_modules(changed: Callable[[list[Any]], list[Any]]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "modules.json").write_text(json.dumps(changed(json.loads((folder / "modules.json").read_text()))))

    return write


@torch.no_grad()
def views(backbone: Backbone, tokenizer_folder: Path, side: Side = "passage") -> TextVectors:
    tokens = load_tokenizer(tokenizer_folder)(TEXTS, padding=True, return_tensors="pt", max_length=12, truncation=True)
    special_V = Vocabulary.of(tokenizer_folder).special_V
    lengths_B = tokens["attention_mask"].sum(1)
    found: TextVectors = backbone.pooling(backbone, tokens["input_ids"], lengths_B, special_V, side)
    return found
