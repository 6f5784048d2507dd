#!/usr/bin/env python3
"""Fine-tunes a dense bi-encoder on the train queries of a corpus, in the stages of a recipe.

The recipe's middle training comes first, unless it is done already; `--recipe none --set backbone.name=FOLDER`
fine-tunes any model folder. The result is a folder that sentence_transformers.SentenceTransformer loads.
"""

from argparse import Namespace

from _entry import run

from midmask.cluster.job import Options


def work(options: Options, flags: Namespace) -> None:
    from midmask.cluster.driver import recipe_for, run_steps
    from midmask.evaluate.rendering import markdown
    from midmask.recipes.plan import plan

    recipe = recipe_for(options, default="retromae")
    steps = {f"stage {number}": step for number, step in enumerate(plan(recipe).stages, start=1)}
    done = run_steps(options, recipe, steps)
    if done:
        rows = [
            (name, f"{stage.result['loss']:.4f}", str(stage.result["steps"]), f"{stage.result['seconds']:.0f}")
            for name, stage in done.items()
        ]
        print(markdown(["fine-tuning", "loss", "steps", "seconds"], rows))
        print(f"\nmodel: {list(done.values())[-1].place}/model\n{options.where_to_look()}")


if __name__ == "__main__":
    run(work, __doc__)
