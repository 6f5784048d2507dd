"""The folder of a bi-encoder: what transformers, sentence-transformers and midmask read alike, and its README.md.

    config.json, model.safetensors, tokenizer*    transformers: the encoder, with its MLM head if a view needs it
    modules.json, 1_Pooling/, 2_Dense/ …          sentence-transformers: the views its stock modules can give; token
                                                  vectors in a MultiVectorEncoder, from version 6 on
    query/, router_config.json                    the queries' encoder, whole, if there are experts
    midmask.json, experts.safetensors             midmask: all views; what queries have for themselves
    README.md                                     what the model is, what each library sees of it

Stock modules cannot leave special tokens out of a lexical view, nor take logits as weights, nor give two views at once.
Of a hybrid, SentenceTransformer sees the dense view; a lexical view that it cannot say has no modules.json. The README
says nothing that the folder or its maker does not know; above all, no quality.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor, nn

from midmask.encoders.backbone import Backbone, load_backbone
from midmask.encoders.experts import put_query_expert
from midmask.encoders.families import count_token_types
from midmask.encoders.model_settings import FILE, TOKEN_STATES, ModelSettings, TextForm, modules_of, read_facts
from midmask.encoders.reading import library_reading, read_settings, refuse_not_finite, save_model
from midmask.encoders.representation import Representation
from midmask.errors import UserError

PROJECTION = "2_Dense"
"""Where a projection's weights are, as sentence-transformers lays them out."""

Loader = Literal["SentenceTransformer", "SparseEncoder", "MultiVectorEncoder"]


def model_card(facts: ModelSettings, *, loader: Loader | None, routed: bool) -> str:
    """The text of README.md.

    Args:
        loader: the class of sentence-transformers that the folder is laid out for; none: for none.
        routed: whether queries have an encoder of their own.
    """
    representation = facts.representation
    named = representation.model_dump(exclude={"specials"}, exclude_none=True)
    joined = "" if facts.form.title_join == "space" else f" Title and text of a passage: {facts.form.title_join}."
    score = "MaxSim of their token vectors" if representation.tokens else "the dot product of their views, added up"
    sections = [
        f"---\nlibrary_name: {'sentence-transformers' if loader else 'transformers'}\n"
        "tags: [midmask, information-retrieval]\n---\n",
        "# A bi-encoder trained with midmask\n",
        f"Representation {representation.label}: {', '.join(f'{name} = {value}' for name, value in named.items())}. "
        f"Queries are read up to {facts.query_length} tokens, passages up to {facts.passage_length}."
        f"{' Queries have weights of their own.' if routed else ''} The score of a query and a passage is {score}."
        f"{joined}\n",
        "## What loads it\n",
        f"- transformers: `AutoModel`{' or `AutoModelForMaskedLM`' if representation.lexical else ''}.",
        f"- sentence-transformers: {_as_loaded(representation, loader)}",
        "- midmask: everything, from `midmask.json`.\n",
    ]
    return "\n".join(sections)


def _as_loaded(representation: Representation, loader: Loader | None) -> str:
    """What sentence-transformers sees of the model."""
    if loader is None:
        return "not as it was trained; its modules cannot give these views."
    if representation.dense and representation.lexical:
        return "`SentenceTransformer`, the dense view alone; it cannot give the lexical one."
    if loader == "SparseEncoder" and representation.query_terms != representation.passage_terms:
        return (
            "`SparseEncoder`, the same vectors, if `max_active_dims` is given for each side: "
            f"{representation.query_terms} to `encode_query`, {representation.passage_terms} to `encode_document`."
        )
    return f"`{loader}`, the same vectors."


# The old class paths, which versions 2 to 6 know; those of a lexical view exist since 5.4 only, with fill-mask.
TRANSFORMER = "sentence_transformers.models.Transformer"
ROUTER = "sentence_transformers.models.Router"
POOLING = "sentence_transformers.models.Pooling"
DENSE = "sentence_transformers.models.Dense"
NORMALISE = "sentence_transformers.models.Normalize"
SPLADE = "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"
SCORED_TOKENS = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"

TOKEN_NAMES = {"module_input_name": TOKEN_STATES, "module_output_name": TOKEN_STATES}
"""Settings of a module that reads and gives the vectors of all tokens."""

ROUTES = {
    "types": {"query": TRANSFORMER, ".": TRANSFORMER},
    "structure": {"query": ["query"], "document": ["."]},
    "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
}
"""Queries go through the model in `query/`, documents through the one in the folder itself."""


def save_bi_encoder(
    backbone: Backbone,
    folder: Path,
    tokenizer_folder: Path,
    *,
    max_length: int,
    query_length: int | None = None,
    form: TextForm | None = None,
) -> None:
    """Writes a folder that gives the views of `backbone.pooling` wherever it is loaded; see the head of this module.

    Args:
        max_length: tokens of the longest text, special tokens included; longer ones are cut by sentence-transformers.
        query_length: tokens of the longest query; none: max_length. sentence-transformers cuts both alike, but for
            a MultiVectorEncoder.
        form: how its texts were written before they were tokenised; none: not known.
    """
    representation, form = backbone.pooling.representation, form or TextForm()
    lengths = {"query_length": query_length or max_length, "passage_length": max_length}
    facts = ModelSettings(representation=representation, form=form, **lengths)
    _write_transformer(backbone, backbone.model, folder, tokenizer_folder, facts)
    if backbone.experts is not None:
        backbone.experts.save(folder)
        _write_transformer(backbone, _query_model(backbone, folder), folder / "query", tokenizer_folder, facts)
        _write(folder / "router_config.json", ROUTES)
    loader = _loader(backbone)
    if loader is not None:
        modules = _write_views(backbone, folder)
        first = TRANSFORMER if backbone.experts is None else ROUTER
        listed = [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate([("", first), *modules])]
        _write(folder / "modules.json", listed)
        _write(folder / "config_sentence_transformers.json", _settings(representation, loader, form))
    facts.write(folder)
    text = model_card(facts, loader=loader, routed=backbone.experts is not None)
    (folder / "README.md").write_text(text, "utf-8")


def load_bi_encoder(folder: Path, *, dropout: float) -> Backbone:
    """The backbone in a folder with the views that the folder's files name, its projection and experts included.

    Raises:
        UserError: as `backbone.load_backbone` and `read_facts`.
    """
    backbone = load_backbone(folder, dropout=dropout)
    backbone.represent_as(read_facts(folder).representation, seed=0)
    take_projection(backbone, folder)
    return backbone


def view_widths(folder: Path) -> dict[str, int]:
    """Dimensions of each view that a folder's model gives: `dense`, `lexical`, `late`.

    Raises:
        UserError: as `read_facts`; or if there is no config of a supported family.
    """
    representation, settings = read_facts(folder).representation, read_settings(str(folder), 0.0)
    widths = {
        "dense": representation.width or int(settings.hidden_size),
        "lexical": int(settings.vocab_size),
        "late": representation.tokens or 0,
    }
    return {view: widths[view] for view in representation.views}


def read_projection(folder: Path) -> Tensor | None:
    """The projection of the dense view or of all tokens, float32 [width, D]; none if there is none.

    Raises:
        UserError: as `read_facts`; or if its weights are missing or of another shape.
    """
    width = read_facts(folder).representation.projected
    if width is None:
        return None
    is_ours = (folder / FILE).is_file()
    place = folder / PROJECTION if is_ours else next(place for kind, place in modules_of(folder) if kind == "Dense")
    weight = _read_weight(place)
    if weight.ndim != 2 or len(weight) != width:
        raise UserError(
            f"{place}: a projection of shape {tuple(weight.shape)}, but the folder says width = {width}; save the "
            "model again"
        )
    return weight


def _read_weight(place: Path) -> Tensor:
    """The weight of a linear layer as sentence-transformers saves it. A pickle may hold tensors, and runs no code."""
    with library_reading(place, "projection"):
        if (place / "model.safetensors").is_file():
            weights = safetensors.torch.load_file(place / "model.safetensors")
        else:
            weights = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
        weight: Tensor = weights["linear.weight"]
        weight = weight.float()
    refuse_not_finite(place, [("linear.weight", weight)])
    return weight


def take_projection(backbone: Backbone, folder: Path) -> bool:
    """Gives the backbone's projection the weights of a folder's; whether there were any.

    Raises:
        UserError: if they are of another shape.
    """
    weight, projection = read_projection(folder), backbone.pooling.projection
    if weight is None or projection is None:
        return False
    if weight.shape != projection.weight.shape:
        raise UserError(
            f"{folder}: its projection is of {tuple(weight.shape)}, not of {tuple(projection.weight.shape)}. Set "
            f"representation.width = {len(weight)}, or start from a folder without a projection."
        )
    projection.weight.data.copy_(weight)
    return True


def _write_transformer(backbone: Backbone, model: Any, folder: Path, tokenizer: Path, facts: ModelSettings) -> None:
    """A Hugging Face folder that is also a module of sentence-transformers."""
    representation = backbone.pooling.representation
    settings: dict[str, Any] = {"max_seq_length": facts.passage_length, "do_lower_case": False}
    if representation.tokens is not None:
        settings |= {"query_length": facts.query_length, "document_length": facts.passage_length}
    elif representation.dense is None:
        settings["transformer_task"] = "fill-mask"
    # The tokenizer gives token types where the model reads any but 0.
    is_typed = facts.form.title_join == "pair" and count_token_types(backbone.model.config) > 1
    saved = model.base_model if representation.lexical is None else model
    save_model(saved, folder, tokenizer, typed=is_typed or None)
    _write(folder / "sentence_bert_config.json", settings)


def _query_model(backbone: Backbone, folder: Path) -> Any:
    """The masked LM of queries as one model. Its output matrix is the passages', as for midmask."""
    model = copy.deepcopy(backbone.model)
    if _has_own_words(backbone) and backbone.pooling.representation.lexical is not None:
        head = model.get_output_embeddings()
        for name, shared in list(head.named_parameters()):  # the bias too: untied, a model reads both of its names
            setattr(head, name, nn.Parameter(shared.detach().clone()))
        model.config.tie_word_embeddings = False
    put_query_expert(model.base_model, folder)
    return model


def _has_own_words(backbone: Backbone) -> bool:
    """Whether queries have word embeddings for themselves."""
    return backbone.experts is not None and backbone.experts.split.kind == "all"


def _loader(backbone: Backbone) -> Loader | None:
    """Which class of sentence-transformers gives the views, or the dense one of two; none if none can."""
    representation = backbone.pooling.representation
    if representation.tokens is not None:
        return "MultiVectorEncoder" if backbone.experts is None else None
    if representation.dense is not None:
        return "SentenceTransformer"
    if representation.lexical != "splade" or not representation.specials:
        return None
    # An MLM head that multiplies by the word embeddings themselves would multiply by the query expert's.
    borrows_words = backbone.output_weight_VD is not backbone.model.get_output_embeddings().weight
    return None if borrows_words and _has_own_words(backbone) else "SparseEncoder"


def _write_views(backbone: Backbone, folder: Path) -> list[tuple[str, str]]:
    """Writes the modules behind the transformer; folder and class of each."""
    representation, projection = backbone.pooling.representation, backbone.pooling.projection
    if representation.tokens is not None and projection is not None:
        return _write_token_views(projection, folder)
    if representation.dense is None:
        _write(folder / "1_SpladePooling" / "config.json", {"pooling_strategy": "max", "activation_function": "relu"})
        return [("1_SpladePooling", SPLADE)]
    pooling = {"word_embedding_dimension": backbone.width}
    modes = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "mean_sqrt_len_tokens": "sqrt"}
    pooling |= {f"pooling_mode_{key}": representation.dense == mode for key, mode in modes.items()}
    _write(folder / "1_Pooling" / "config.json", pooling)
    modules = [("1_Pooling", POOLING)]
    if projection is not None:
        _write_projection(projection, folder / PROJECTION, {})
        modules.append((PROJECTION, DENSE))
    if representation.normalise:
        name = f"{len(modules) + 1}_Normalize"
        (folder / name).mkdir(exist_ok=True)
        modules.append((name, NORMALISE))
    return modules


def _write_token_views(projection: nn.Linear, folder: Path) -> list[tuple[str, str]]:
    """The modules of token vectors: all tokens are projected and scored, with length 1."""
    _write_projection(projection, folder / PROJECTION, TOKEN_NAMES)
    _write(folder / "3_MultiVectorMask" / "config.json", {"skiplist_words": []})
    _write(folder / "4_Normalize" / "config.json", TOKEN_NAMES)
    return [(PROJECTION, DENSE), ("3_MultiVectorMask", SCORED_TOKENS), ("4_Normalize", NORMALISE)]


def _write_projection(projection: nn.Linear, folder: Path, names: Mapping[str, str]) -> None:
    """The projection as a Dense module.

    Args:
        names: of what it reads and gives, where that is not the vector of a whole text.
    """
    _write(
        folder / "config.json",
        {
            "in_features": projection.in_features,
            "out_features": projection.out_features,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
            **names,
        },
    )
    weight = projection.weight.detach().cpu().contiguous()
    safetensors.torch.save_file({"linear.weight": weight}, folder / "model.safetensors")


def _settings(representation: Representation, loader: Loader, form: TextForm) -> dict[str, Any]:
    """The settings of the whole model for sentence-transformers."""
    named = {"query": form.query_prompt, "document": form.passage_prompt}
    prompts = {name: prompt for name, prompt in named.items() if prompt}
    similarity = "maxsim" if loader == "MultiVectorEncoder" else "dot"
    settings: dict[str, Any] = {"model_type": loader, "prompts": prompts, "similarity_fn_name": similarity}
    if loader != "SparseEncoder":
        return settings
    alike = representation.query_terms == representation.passage_terms
    return {**settings, "max_active_dims": representation.query_terms if alike else None}


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
