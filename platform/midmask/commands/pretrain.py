"""Middle training: trains an encoder on the passages of a corpus with one of the objectives.

The result is a Hugging Face folder that transformers.AutoModel loads, and beside it the heads that fine-tuning throws
away.
"""

from argparse import Namespace

from midmask.app.job import Options


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import recipe_for, run_steps
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan

    recipe = recipe_for(options, default="retromae")
    steps = plan(recipe)
    done = run_steps(options, recipe, {"encoder": steps.pretrained or steps.initial})
    if not done:
        return
    from midmask.app.ending import ending, model_product

    encoder, tables = done["encoder"], []
    if steps.pretrained is None:
        sentence = f"Recipe {recipe.name} has no middle training; this is the encoder that its fine-tuning starts from."
    else:
        found = encoder.result
        sentence = f"{recipe.name} has loss {found['loss']:.4f} after {found['steps']:,} steps of middle training."
        losses = {"loss": encoder.result["loss"], **encoder.result["parts"]}
        rows = [(name, f"{value:.4f}") for name, value in losses.items()]
        rows += [(name, f"{encoder.result[name]:,.0f}") for name in ("steps", "tokens", "seconds")]
        tables = [markdown(["pre-training", recipe.name], rows)]
    print(ending(options, sentence, tables, model_product(encoder.place / "model")))
