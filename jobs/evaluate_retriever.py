#!/usr/bin/env python3
"""Evaluates a retriever: searches the whole corpus for a split's queries and prints the measures, beside BM25's.

Evaluates the encoder that the recipe's last stage gives, or the model folder of --model.
"""

from argparse import ArgumentParser, Namespace

from _entry import run

from midmask.cluster.job import Options


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="FOLDER", help="model folder to evaluate; default: the recipe's last stage")
    parser.add_argument("--split", default="dev", help="whose queries are searched; default: dev")


def work(options: Options, flags: Namespace) -> None:
    from midmask.cluster.driver import recipe_for, run_steps, searched_with
    from midmask.evaluate.rendering import markdown
    from midmask.recipes.plan import bm25_evaluation, plan

    recipe, model = searched_with(recipe_for(options, default="retromae"), flags.model)
    config = recipe.evaluation.model_copy(update={"split": flags.split})
    label = flags.model or recipe.name
    steps = {label: plan(recipe).evaluation(config, model=model), "bm25": bm25_evaluation(recipe, flags.split)}
    done = run_steps(options, recipe, steps)
    if done:
        names = list(done[label].result["measures"])
        rows = [(key, *(f"{row.result['measures'][name]:.4f}" for name in names)) for key, row in done.items()]
        print(markdown([f"{recipe.corpus.short_name} {flags.split}", *names], rows))
        print(f"\nranked list: {done[label].place}/runs\n{options.where_to_look()}")


if __name__ == "__main__":
    run(work, __doc__, add_flags)
