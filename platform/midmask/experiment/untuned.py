"""An encoder as a retriever without any fine-tuning: for collections that have no queries to train on, and as the row
that fine-tuned ones are held against.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import load_backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Representation
from midmask.encoders.text_form import TextForm
from midmask.experiment.schema import Recipe
from midmask.identity import Config


class UntunedConfig(Config):
    """How an encoder that was not fine-tuned is read as a retriever."""

    representation: Representation = Field(description="which views of a text are scored")
    form: TextForm = Field(description="how texts are written before they are tokenised")
    query_length: int = Field(ge=4, description="tokens of a query")
    passage_length: int = Field(ge=8, description="tokens of a passage")
    seed: int = Field(0, ge=0, lt=2**31, description="of a projection, which nothing has trained")


def untuned_config(recipe: Recipe) -> UntunedConfig:
    """How the recipe reads an encoder that was not fine-tuned."""
    tokens = recipe.tokens
    return UntunedConfig(
        representation=recipe.representation,
        form=TextForm.of(tokens.model_dump()),
        query_length=tokens.query_length,
        passage_length=tokens.max_length,
        seed=recipe.pretrain.seed,
    )


def untuned(config: UntunedConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: `start`, an artifact with a Hugging Face folder in `model/`; tokens.

    Writes `model/`, which transformers, sentence-transformers and midmask read alike.
    """
    backbone = load_backbone((inputs["start"].place / "model").local(), dropout=0.0)
    backbone.represent_as(config.representation, seed=config.seed)
    tokenizer = (inputs["tokens"].place / "tokenizer").local()
    longest, query_length = config.passage_length, config.query_length
    with tempfile.TemporaryDirectory() as name:
        save_bi_encoder(
            backbone, Path(name), tokenizer, max_length=longest, query_length=query_length, form=config.form
        )
        (out / "model").upload(Path(name))
    return {}
