"""The steps behind a ranked list: who encodes what, and who ranks. Evaluation and mining both start from one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from midmask.core.config import file_fingerprint
from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.encoders.model_settings import read_facts, vector_width
from midmask.encoders.reading import SIZES
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.graph import Step
from midmask.experiment.steps import AdoptConfig
from midmask.mining.known import NearDuplicatesConfig
from midmask.mining.mine import MineConfig
from midmask.retrieve.bm25.index import Bm25IndexConfig, Bm25WordsConfig
from midmask.retrieve.bm25.search import Bm25Config
from midmask.retrieve.encode import EncodeConfig
from midmask.retrieve.index import TRAINING_ROWS, IndexConfig, IndexFields, SampleConfig
from midmask.retrieve.ranked import FuseConfig
from midmask.retrieve.search import ALL, SearchConfig
from midmask.store.pretrained import installed_folder, transformer_folder
from midmask.text.tokens import TokensConfig


def ranking(
    tokens: Step,
    model: Step,
    search: EvaluateConfig | MineConfig,
    *,
    judged: Literal["any", "relevant"],
) -> Step:
    """The search of a split's queries with an encoder. Whatever is evaluated or mined with a model, its passages are
    encoded once.
    """
    _check_index(search, model)
    representation = represented_by(model)
    search.check_pool(_place(search), search.depth, late=representation.tokens is not None)
    passages = passage_encoding_step(tokens, model, search)
    tokens = passages.inputs["tokens"]
    queries = EncodeConfig(
        side="queries",
        split=search.split,
        judged=judged,
        max_queries=search.max_queries,
        length=search.query_length,
        precision=_precision(search),
        threads=search.threads,
    )
    inputs = {**passages.inputs, "corpus": tokens.inputs["corpus"]}
    encoded = {"passages": passages, "queries": Step("encode", queries, inputs)}
    config = SearchConfig(
        depth=_depth(search),
        index=search.index,
        nprobe=search.nprobe,
        ef_search=search.ef_search,
        rescore=search.rescore,
        threads=search.threads,
    )
    if isinstance(search, EvaluateConfig):
        counted = {name: getattr(search, name) for name in ("views", "query_terms", "passage_terms", "width")}
        config = config.model_copy(update=counted)
    if not search.is_exact:
        encoded |= _approximate_inputs(config, encoded, tokens, search, _dense_width(model))
    if representation.tokens is not None and search.candidates != ALL:
        titles: bool = tokens.config.titles  # type: ignore[attr-defined]
        deeper = search.model_copy(update={"depth": search.pool})
        encoded["candidates"] = bm25_ranking(tokens.inputs["corpus"], deeper, titles=titles, judged=judged)
    return Step("search", config, {**encoded, "tokens": tokens})


def _approximate_inputs(
    config: SearchConfig, encoded: Mapping[str, Step], tokens: Step, search: EvaluateConfig | MineConfig, width: int
) -> dict[str, Step]:
    """What an approximate search needs beside encodings: the index, and the exact search of some of its queries."""
    passages = {"passages": encoded["passages"], "tokens": tokens}
    built = IndexConfig(
        index=search.index,
        ef_construction=search.ef_construction,
        training_rows=TRAINING_ROWS if search.learns(width) else None,
        threads=search.threads,
    )
    exact = config.model_copy(update=IndexFields().model_dump())
    sample = Step("sample", SampleConfig(), {"queries": encoded["queries"]})  # by which all its indexes are measured
    return {
        "index": Step("index", built, passages),
        "exact": Step("search_sample", exact, {**passages, "queries": sample}),
    }


def passage_encoding_step(tokens: Step, model: Step, search: EvaluateConfig | MineConfig) -> Step:
    """The encoding of all passages that every search with these lengths shares. Inputs: model; tokens, as long as is
    wanted.
    """
    config = EncodeConfig(
        side="passages", length=search.passage_length, precision=_precision(search), threads=search.threads
    )
    return Step("encode", config, {"model": model, "tokens": tokens_as_long_as(search, tokens)})


def _precision(search: EvaluateConfig | MineConfig) -> Literal["fp32", "bf16"]:
    """The precision of a search; `auto` that was not settled is fp32."""
    return "bf16" if search.precision == "bf16" else "fp32"


def _check_index(search: EvaluateConfig | MineConfig, model: Step) -> None:
    """Finds an index that cannot be built of a model's vectors before anything is computed.

    Raises:
        UserError: if not a dense view alone is searched, or as `IndexFields.check_index`.
    """
    if search.is_exact:
        return
    views = [view for view in represented_by(model).views if getattr(search, "views", "all") in ("all", view)]
    if views != ["dense"]:
        raise UserError(
            f"{_place(search)}.index = {search.index}: an approximate index is of dense vectors that are searched "
            "alone; leave it at Flat"
        )
    search.check_index(_place(search), _dense_width(model))


def _place(search: EvaluateConfig | MineConfig) -> str:
    """The path of a search's fields, as typed."""
    return "evaluation" if isinstance(search, EvaluateConfig) else "mine"


def represented_by(model: Step) -> Representation:
    """The views that a model gives; those of an encoder that was not fine-tuned are the default.

    Raises:
        UserError: if it is a folder from elsewhere whose files say what midmask cannot do.
    """
    if isinstance(model.config, AdoptConfig):
        return read_facts(Path(model.config.folder)).representation
    representation: Representation = getattr(model.config, "representation", Representation())
    return representation


def _dense_width(model: Step) -> int:
    """Width of a model's dense view, that of its hidden states unless it is projected; 0 where it is not known."""
    if (width := represented_by(model).width) is not None:
        return width
    if isinstance(model.config, AdoptConfig):
        return vector_width(Path(model.config.folder), f"model = {model.config.folder}")
    while "start" in model.inputs:
        model = model.inputs["start"]
    backbone: BackboneConfig = model.config.backbone  # type: ignore[attr-defined]
    return shape_of(backbone).width


def _depth(search: EvaluateConfig | MineConfig) -> int:
    """Number of results to retrieve; for an evaluation one more than its depth, because a query that is also a passage
    is removed from its own results.
    """
    return search.depth + isinstance(search, EvaluateConfig)


def tokens_as_long_as(search: EvaluateConfig | MineConfig, tokens: Step) -> Step:
    """Tokens that can be read as far as is wanted: these, or the same collection and tokenizer with longer rows."""
    config: TokensConfig = tokens.config  # type: ignore[assignment]
    lengths = {
        "max_length": max(config.max_length, search.passage_length or 0),
        "query_length": max(config.query_length, search.query_length or 0),
    }
    longer = config.model_copy(update=lengths)
    return tokens if longer == config else tokens_like(tokens, longer, tokens.inputs["corpus"])


def tokens_like(tokens: Step, config: TokensConfig, corpus: Step) -> Step:
    """A collection as a model reads it that was trained on these tokens."""
    return Step("tokenise", config, {"corpus": corpus, "like": tokens})


def bm25_ranking(
    corpus: Step,
    search: EvaluateConfig | MineConfig,
    *,
    titles: bool,
    judged: Literal["any", "relevant"],
) -> Step:
    """BM25's ranking of the same queries, as deep."""
    config = Bm25Config(
        splits=(search.split,), depth=_depth(search), titles=titles, judged=judged, max_queries=search.max_queries
    )
    return Step("bm25", config, {"corpus": corpus}, prepared={"index": bm25_index(corpus, config)})


def bm25_index(corpus: Step, config: Bm25Config) -> Step:
    """The index of all passages that every ranking with these k1, b and titles shares."""
    words = Step("bm25_words", Bm25WordsConfig(titles=config.titles), {"corpus": corpus})
    return Step("bm25_index", Bm25IndexConfig(k1=config.k1, b=config.b), {"words": words})


def fused_ranking(encoder: Step, bm25: Step, search: EvaluateConfig) -> Step:
    """The step that fuses two rankings into one."""
    config = FuseConfig(split=search.split, depth=_depth(search), bm25_share=search.bm25_share, fusion=search.fusion)
    return Step("fuse", config, {"encoder": encoder, "bm25": bm25})


def evaluation_step(ranked: Step, corpus: Step, config: EvaluateConfig) -> Step:
    return Step("evaluate", config, {"ranked": ranked, "corpus": corpus})


def mining_step(lists: Mapping[str, Step], corpus: Step, config: MineConfig) -> Step:
    """The step that chooses hard negatives from lists (inputs of `mining.mine`), without near copies of positives."""
    alike = Step("near_duplicates", NearDuplicatesConfig(), {"corpus": corpus})
    return Step("mine", config, {**lists, "corpus": corpus, "near_duplicates": alike})


def adopted(folder: str, content: Mapping[str, Any] | None = None) -> Step:
    """A model folder from elsewhere as a step; its identity is its files' contents, looked up if not given."""
    return Step("adopt", AdoptConfig(folder=folder), content=content or folder_content(folder))


def folder_content(name: str | None) -> Mapping[str, Any]:
    """The files of a named model, by fingerprint: two folders with equal bytes are the same start. Nothing for a size,
    nor for a model that is not there, which `Recipe.check` refuses.
    """
    folder = None if name is None or name in SIZES else installed_folder(name)
    if folder is None:
        return {}
    patterns = ("*.json", "vocab.txt", "*.safetensors", "pytorch_model*.bin", "[0-9]*_*/*")
    below = () if (place := transformer_folder(folder)) == folder else place.iterdir()
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}.union(below))
    return {str(path.relative_to(folder)): file_fingerprint(path) for path in paths}
