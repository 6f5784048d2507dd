"""The settings of a sentence-transformers folder: prompts, lengths, dimensions, similarity, a subfolder. Each
gives the scores that sentence-transformers itself gives.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder, take_projection
from midmask.encoders.model_settings import read_facts, read_representation
from midmask.encoders.text_form import TextForm
from midmask.experiment.model_folder import as_folder_reads
from midmask.experiment.steps import AdoptConfig, adopt
from midmask.recipes import RECIPES
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.tokens import tokenise
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import TEXTS, random_model
from tests.support.retrieve.collection import write_parts


def bert(folder: Path) -> Path:
    random_model("bert").save_pretrained(folder)
    return folder


def vectors(folder: Path, place: Path) -> dict[str, np.ndarray]:
    """Dense vectors of TEXTS as passages, all but the first with a title, and as queries, by a search's own steps."""
    docs = [(f"d{row}", "mat" if row else "", text) for row, text in enumerate(TEXTS)]
    queries = [(f"q{row}", text) for row, text in enumerate(TEXTS)]
    qrels = [("test", f"q{row}", f"d{row}", 1) for row in range(len(TEXTS))]
    corpus = write_parts(Place(str(place / "corpus")), docs=docs, queries=queries, qrels=qrels)
    config = as_folder_reads(RECIPES["none"](), folder, ()).tokens
    tokens = Artifact(Place(str(place / "tokens")), {"fingerprint": "t", "config": config.model_dump()})
    tokens.record["result"] = tokenise(config, {"corpus": corpus}, tokens.place)
    inputs = {"corpus": corpus, "tokens": tokens}
    inputs["model"] = Artifact(Place(str(place / "adopt")), {"fingerprint": "m", "result": {}})
    adopt(AdoptConfig(folder=str(folder)), {}, inputs["model"].place)
    found = {}
    for side, split in (("passages", None), ("queries", "test")):
        out = Place(str(place / side))
        encode(EncodeConfig.model_validate({"side": side, "split": split}), inputs, out)
        with (out / "dense" / "00000.npy").reading() as stream:
            found[side] = np.load(stream)
    return found


def changed(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def foreign(base: Path, tokenizer_folder: Path, folder: Path, *more: Any, **pooling: Any) -> Path:
    """A folder of sentence-transformers with a Pooling and further modules, scored by the dot product."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    load_tokenizer(tokenizer_folder).save_pretrained(base)
    modules = [Transformer(str(base), max_seq_length=12), Pooling(32, **pooling), *more]
    SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="dot").save(str(folder))
    return folder


WRITTEN = [f"{'mat' if row else ''} {text}".strip() for row, text in enumerate(TEXTS)]
"""The passages of `vectors` as texts."""

PROMPTED = {
    "names": ({"query": "red dog .", "document": "the"}, None),
    "passage is no name that version 6 comes to": ({"query": "red dog .", "passage": "the"}, None),
    "an empty name is a prompt": ({"query": "", "document": "a cat", "web": "blue"}, "web"),
    "a default prompt is for neither side": ({"web": "blue"}, "web"),
}


@pytest.mark.parametrize("case", PROMPTED)
@pytest.mark.parametrize("pooled", [True, False], ids=["prompt pooled", "prompt left out"])
@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_prompts_are_put_before_texts_as_sentence_transformers_does(
    mode: str, pooled: bool, case: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    prompts, default = PROMPTED[case]
    folder = foreign(
        bert(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", pooling_mode=mode, include_prompt=pooled
    )
    changed(folder / "config_sentence_transformers.json", prompts=prompts, default_prompt_name=default)
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    found = vectors(folder, tmp_path)
    np.testing.assert_allclose(found["passages"], theirs.encode_document(WRITTEN), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["queries"], theirs.encode_query(TEXTS), rtol=1e-4, atol=1e-4)


def in_subfolder(folder: Path) -> None:
    """As versions 0 to 2 saved it: the transformer in 0_Transformer, a version alone in config.json."""
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [path for path in folder.iterdir() if path.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json", "README.md"):
            file.rename(inner / file.name)
    (folder / "config.json").write_text('{"__version__": "0.4.1"}')
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    (folder / "modules.json").write_text(json.dumps(modules))


def settings(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "config_sentence_transformers.json", **values)


def transformer(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "sentence_bert_config.json", **values)


def tokenizer(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder / "tokenizer_config.json", **values)


READINGS: dict[str, Callable[[Path], None]] = {
    "0_Transformer": in_subfolder,
    "no similarity is the cosine": settings(similarity_fn_name=None),
    "dimensions": settings(truncate_dim=5, similarity_fn_name="cosine"),
    "more dimensions than there are": settings(truncate_dim=500),
    "lengths of sides": transformer(query_length=8, document_length=9),
    "a side longer than the rest": transformer(max_seq_length=6, document_length=9),
    "cut on the left": tokenizer(truncation_side="left"),
}


@pytest.mark.parametrize("projected", [False, True], ids=["plain", "Dense, Normalize"])
@pytest.mark.parametrize("case", READINGS)
def test_scores_are_those_of_sentence_transformers(
    case: str, projected: bool, tokenizer_folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize

    torch.manual_seed(0)
    more = [Dense(32, 8, bias=False, activation_function=nn.Identity()), Normalize()] if projected else []
    folder = foreign(bert(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", *more, pooling_mode="mean")
    READINGS[case](folder)
    found = vectors(folder, tmp_path)
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    expected = theirs.similarity(theirs.encode_query(TEXTS), theirs.encode_document(WRITTEN))
    np.testing.assert_allclose(found["queries"] @ found["passages"].T, expected, rtol=1e-5, atol=1e-6)


def test_dimensions_that_are_cut_off_are_so_in_training_too(
    tokenizer_folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = foreign(bert(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", pooling_mode="cls")
    settings(truncate_dim=5)(folder)
    backbone = build_backbone(BackboneConfig(name=str(folder), dropout=0.0), vocabulary, seed=0)
    backbone.represent_as(read_representation(folder), seed=0)
    assert take_projection(backbone, folder) and backbone.pooling.representation.width == 5
    save_bi_encoder(backbone, tmp_path / "ours", tokenizer_folder, max_length=12)
    load = {"device": "cpu", "local_files_only": True}
    before, after = (SentenceTransformer(str(place), **load) for place in (folder, tmp_path / "ours"))
    np.testing.assert_allclose(after.encode(TEXTS), before.encode(TEXTS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("prompts", "default", "query", "passage", "unread"),
    [
        ({"query": "query: ", "passage": "passage: "}, None, "query: ", "", ["passage"]),
        ({"query": "query: ", "document": "", "passage": "passage: "}, None, "query: ", "", []),
        ({"query": "q", "document": "d", "corpus": "c"}, None, "q", "d", []),
        ({"clustering": "Cluster: ", "query": "", "document": ""}, "clustering", "", "", []),
        ({"web": "Find: "}, "web", "", "", ["query", "passage"]),
        ({"web": "Find: "}, None, "", "", []),
        (None, None, "", "", []),
    ],
)
def test_prompts_of_queries_and_passages(
    tokenizer_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    prompts: dict[str, str] | None,
    default: str | None,
    query: str,
    passage: str,
    unread: list[str],
) -> None:
    """Those that no side reads are said, with the setting that uses them."""
    folder = foreign(bert(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", pooling_mode="cls")
    caplog.clear()
    settings(prompts=prompts, default_prompt_name=default)(folder)
    assert read_facts(folder).form == TextForm(query_prompt=query, passage_prompt=passage)
    fields = [f"tokens.{side}_prompt" for side in unread]
    as_folder_reads(RECIPES["none"](), folder, ["tokens.passage_prompt", "tokens.query_prompt"])
    assert not caplog.records, "the user has set both"
    as_folder_reads(RECIPES["none"](), folder, ())
    assert [field in record.getMessage() for field, record in zip(fields, caplog.records, strict=True)] == [True] * len(
        fields
    )


def test_lengths_beyond_the_positions_are_cut_there_and_said(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = foreign(bert(tmp_path / "base"), tokenizer_folder, tmp_path / "theirs", pooling_mode="cls")
    caplog.clear()
    transformer(max_seq_length=1024)(folder)
    assert read_facts(folder).passage_length == 34
    as_folder_reads(RECIPES["none"](), folder, ())
    assert "max_seq_length = 1,024" in caplog.text
