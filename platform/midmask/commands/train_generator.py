"""Trains a model that writes queries for passages, on the train queries of a labelled collection.

Its folder is a source of queries: `model:FOLDER`, for `pseudo_queries.source` and wherever queries are made. It is an
encoder-decoder that starts from the recipe's backbone. A pre-trained encoder (--set backbone.name=minilm
--set tokens.tokenizer=minilm) stays as it is, and the decoder learns to read it. Length, batch and optimiser are the
fields stages.0.train.*, for which there are the flags below.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from midmask.app.job import Options, resolve_storage

# The sources of queries show a writer the title and the text; the recipes' own tokens are those of a demo.
TOKENS = {
    "tokens.titles": "true",
    "tokens.vocabulary_size": "8192",
    "tokens.max_length": "128",
    "tokens.query_length": "32",
}
"""Field -> its value, unless another is given."""

USUAL = {
    "steps": "2000",
    "batch_size": "32",
    "learning_rate": "1e-3",
}
"""Field of stages.0.train -> its value, unless another is given."""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, metavar="N", help=f"optimiser steps; default: {USUAL['steps']}")
    parser.add_argument("--batch-size", type=int, metavar="N", help=f"queries a step; default: {USUAL['batch_size']}")
    parser.add_argument("--learning-rate", type=float, metavar="X", help=f"default: {USUAL['learning_rate']}")
    parser.add_argument("--out", metavar="FOLDER", help="also copy the model's folder there")


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import recipe_for, run_steps
    from midmask.app.ending import ending, model_product
    from midmask.artifact import Place
    from midmask.errors import UserError
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import Step, plan
    from midmask.objectives.finetuning.generation import QueryGeneration
    from midmask.queries.train import GeneratorConfig

    out = Place(resolve_storage(flags.out, options.home)) if flags.out else None
    if out is not None and out.names():
        raise UserError(f"--out {out}: there are files in it; name an empty or a new folder")
    typed = {name: str(value) for name in USUAL if (value := getattr(flags, name)) is not None}
    train = {f"stages.0.train.{name}": value for name, value in {**USUAL, **typed}.items()}
    recipe = recipe_for(replace(options, changes={**TOKENS, **train, **options.changes}), default="none")
    steps, tokens = plan(recipe), recipe.tokens
    if tokens.title_join != "space":
        raise UserError(
            f"tokens.title_join = {tokens.title_join}: a generator reads 'title text' as one text; leave it at space"
        )
    config = GeneratorConfig(
        backbone=recipe.backbone,
        loss=QueryGeneration.Config(frozen_encoder=recipe.backbone.is_pretrained),
        train=recipe.stages[0].train.model_copy(update={"precision": steps.precision}),
        query_length=tokens.query_length,
        passage_length=tokens.max_length,
    )
    inputs = {"corpus": steps.corpus, "tokens": steps.tokens}
    generator = Step("generator", config, inputs, content=steps.initial.content, path="stages.0.train")
    done = run_steps(options, recipe, {"generator": generator})
    if done:
        model = done["generator"].place / "model"
        if out is not None:
            out.upload(model.local())
        rows = [(name, str(value)) for name, value in done["generator"].result.items()]
        sentence = f"The generator of queries was trained for {done['generator'].result['steps']:,} steps."
        further = {"as a source of queries": f"model:{out or model}"}
        table = markdown(["generator", "value"], rows)
        print(ending(options, sentence, [table], model_product(out or model), further=further))
