#!/usr/bin/env python3
"""Runs a whole recipe: corpus, tokens, middle training, fine-tuning stages, evaluation on dev and test, beside BM25."""

from argparse import Namespace

from _entry import run

from midmask.cluster.job import Options


def work(options: Options, flags: Namespace) -> None:
    from midmask.cluster.driver import recipe_for, run_steps
    from midmask.evaluate.rendering import markdown
    from midmask.recipes.plan import bm25_evaluation, plan

    recipe = recipe_for(options, default="retromae")
    steps = {}
    for split in ("dev", "test"):
        config = recipe.evaluation.model_copy(update={"split": split})
        steps[f"{recipe.name}, {split}"] = plan(recipe).evaluation(config)
        steps[f"bm25, {split}"] = bm25_evaluation(recipe, split)
    done = run_steps(options, recipe, steps)
    if done:
        names = list(next(iter(done.values())).result["measures"])
        rows = [(key, *(f"{row.result['measures'][name]:.4f}" for name in names)) for key, row in done.items()]
        print(markdown([recipe.corpus.short_name, *names], rows))
        print(f"\n{options.where_to_look()}")


if __name__ == "__main__":
    run(work, __doc__)
