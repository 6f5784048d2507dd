#!/usr/bin/env python3
"""Middle training: trains an encoder on the passages of a corpus with one of the objectives.

The result is a Hugging Face folder that transformers.AutoModel loads, and beside it the heads that fine-tuning throws
away.
"""

from argparse import Namespace

from _entry import run

from midmask.cluster.job import Options


def work(options: Options, flags: Namespace) -> None:
    from midmask.cluster.driver import need, recipe_for, run_steps
    from midmask.cluster.report import markdown
    from midmask.recipes.plan import plan

    recipe = recipe_for(options, default="retromae")
    step = need(plan(recipe).pretrained, recipe, "middle training")
    done = run_steps(options, recipe, {"pretrained": step})
    if done:
        result = done["pretrained"].result
        rows = [(name, f"{value:.4f}") for name, value in {"loss": result["loss"], **result["parts"]}.items()]
        rows += [(name, f"{result[name]:,.0f}") for name in ("steps", "tokens", "seconds")]
        print(markdown(["pre-training", recipe.name], rows))
        print(f"\nmodel: {done['pretrained'].place}/model\n{options.where_to_look()}")


if __name__ == "__main__":
    run(work, __doc__)
