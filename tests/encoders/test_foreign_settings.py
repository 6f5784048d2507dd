"""The settings of a sentence-transformers folder: prompts, lengths, dimensions, similarity, a subfolder. Each
gives the scores that sentence-transformers itself gives.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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
from midmask.vocabulary import Vocabulary
from tests.support.encoders.models import TEXTS
from tests.support.encoders.public import (
    change_modules,
    dense_model,
    opened,
    settings,
    tokenizer,
    transformer,
    vectors_of,
)
from tests.support.retrieve.collection import write_parts


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


WRITTEN = [f"{'mat' if row else ''} {text}".strip() for row, text in enumerate(TEXTS)]
"""The passages of `vectors` as texts."""

PROMPTED: list[tuple[dict[str, str], str | None, str, bool]] = [
    ({"query": "red dog .", "document": "the"}, None, "cls", True),
    ({"query": "red dog .", "passage": "the"}, None, "mean", True),  # which is no name that version 6 comes to
    ({"query": "", "document": "a cat", "web": "blue"}, "web", "mean", False),  # an empty name is a prompt
    ({"web": "blue"}, "web", "mean", True),  # for neither side
]


@pytest.mark.parametrize(("prompts", "default", "mode", "pooled"), PROMPTED, ids=str)
def test_prompts_are_put_before_texts_as_sentence_transformers_does(
    prompts: dict[str, str], default: str | None, mode: str, pooled: bool, base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    dense_model(base, pooling_mode=mode, include_prompt=pooled).save(str(folder))
    settings(prompts=prompts, default_prompt_name=default)(folder)
    theirs, found = opened(folder), vectors(folder, tmp_path)
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
    old = {"path": inner.name, "type": "sentence_transformers.models.Transformer"}
    change_modules(lambda modules: [modules[0] | old, *modules[1:]])(folder)


READINGS: dict[str, Callable[[Path], None]] = {
    "0_Transformer": in_subfolder,
    "no similarity is the cosine": settings(similarity_fn_name=None),
    "dimensions": settings(truncate_dim=5, similarity_fn_name="cosine"),
    "more dimensions than there are": settings(truncate_dim=500),
    "lengths of sides": transformer(query_length=8, document_length=9),
    "a side longer than the rest": transformer(max_seq_length=6, document_length=9),
    "cut on the left": tokenizer(truncation_side="left"),
}


@pytest.mark.parametrize(
    ("case", "projected"), [*((case, False) for case in READINGS), ("0_Transformer", True), ("lengths of sides", True)]
)
def test_scores_are_those_of_sentence_transformers(case: str, projected: bool, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    dense_model(base, pooling_mode="mean", width=8 if projected else None, normalise=projected).save(str(folder))
    READINGS[case](folder)
    found, theirs = vectors(folder, tmp_path), opened(folder)
    expected = theirs.similarity(theirs.encode_query(TEXTS), theirs.encode_document(WRITTEN))
    np.testing.assert_allclose(found["queries"] @ found["passages"].T, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def folder(base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    dense_model(base).save(str(tmp_path / "theirs"))
    caplog.clear()
    return tmp_path / "theirs"


def test_dimensions_that_are_cut_off_are_so_in_training_too(
    folder: Path, tokenizer_folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    settings(truncate_dim=5)(folder)
    backbone = build_backbone(BackboneConfig(name=str(folder), dropout=0.0), vocabulary, seed=0)
    backbone.represent_as(read_representation(folder), seed=0)
    assert take_projection(backbone, folder) and backbone.pooling.representation.width == 5
    save_bi_encoder(backbone, tmp_path / "ours", tokenizer_folder, max_length=12)
    before, after = (vectors_of(opened(place)) for place in (folder, tmp_path / "ours"))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


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
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    prompts: dict[str, str] | None,
    default: str | None,
    query: str,
    passage: str,
    unread: list[str],
) -> None:
    """Those that no side reads are said, with the setting that uses them."""
    settings(prompts=prompts, default_prompt_name=default)(folder)
    assert read_facts(folder).form == TextForm(query_prompt=query, passage_prompt=passage)
    as_folder_reads(RECIPES["none"](), folder, ["tokens.passage_prompt", "tokens.query_prompt"])
    assert not caplog.records, "the user has set both"
    as_folder_reads(RECIPES["none"](), folder, ())
    said = zip(unread, caplog.records, strict=True)
    assert all(f"tokens.{side}_prompt" in record.getMessage() for side, record in said)


def test_lengths_beyond_the_positions_are_cut_there_and_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    transformer(max_seq_length=1024)(folder)
    assert read_facts(folder).passage_length == 34
    as_folder_reads(RECIPES["none"](), folder, ())
    assert "max_seq_length = 1,024" in caplog.text
