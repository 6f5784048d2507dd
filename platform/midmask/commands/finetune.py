"""Fine-tunes a bi-encoder on the train queries of a corpus, in the stages of a recipe or of --protocol.

The recipe's middle training comes first, unless it is done already; `--recipe none --set backbone.name=FOLDER`
fine-tunes any model folder. The result is a folder that sentence-transformers loads.
"""

from argparse import ArgumentParser, Namespace

from midmask.app.job import Options


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--register",
        nargs="?",
        const="candidate",
        metavar="ALIAS",
        help="put the last stage's model into MLflow's registry under this alias; default: candidate",
    )


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import recipe_for, run_steps
    from midmask.app.ending import ending, model_product
    from midmask.app.register import register
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan

    recipe = recipe_for(options, default="retromae")
    steps = {f"stage {number}": step for number, step in enumerate(plan(recipe).stages, start=1)}
    done = run_steps(options, recipe, steps)
    if done:
        rows = [
            (name, f"{stage.result['loss']:.4f}", str(stage.result["steps"]), f"{stage.result['seconds']:.0f}")
            for name, stage in done.items()
        ]
        table = markdown(["fine-tuning", "loss", "steps", "seconds"], rows)
        name, last = list(done.items())[-1]
        sentence = f"{recipe.name} has loss {last.result['loss']:.4f} after {name} of its fine-tuning."
        further = {}
        if flags.register:
            uri = register(options, recipe, steps[name], last, flags.register)
            further["registered"] = f"{uri}@{flags.register}"
        print(ending(options, sentence, [table], model_product(last.place / "model"), further=further))
