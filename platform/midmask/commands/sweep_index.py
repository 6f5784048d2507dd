"""Compares indexes of one encoding, of dense vectors or of words: what they find, how fast, in how many bytes.

The collection is encoded once, by the encoder that the recipe's last stage gives or by the model of --model. Every
index is built, searched for a split's queries, and held against the exact search; then all are timed in one process.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.job import Options, project


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model", metavar="NAME", help="model to search with: a folder, or minilm; default: the last stage"
    )
    parser.add_argument("--split", help="split whose queries are searched; default: dev, or test where there is no dev")
    parser.add_argument(
        "--indexes", type=Path, metavar="FILE", help="YAML list of indexes; default: search_spaces/indexes/default.yaml"
    )


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import choose_split, recipe_for, recipe_for_folder, run_steps
    from midmask.app.ending import ending, model_product
    from midmask.artifact import Place
    from midmask.experiment.needed_splits import refuse_missing_splits
    from midmask.experiment.plan import plan
    from midmask.sweep.index_space import load_index_space
    from midmask.sweep.index_sweep import plan_index_sweep

    space = load_index_space(flags.indexes or project() / "search_spaces" / "indexes" / "default.yaml")
    recipe, model = recipe_for_folder(recipe_for(options, default="retromae"), flags.model, options)
    recipe, split = choose_split(recipe, flags.split, options, trains=model is None)
    planned = plan(recipe)
    sweep = plan_index_sweep(space, recipe, planned, split, model)
    if options.dry_run:
        run_steps(options, recipe, sweep.targets)
        return
    refuse_missing_splits(sweep.targets.values())
    from midmask.sweep.index_run import run_index_sweep  # here, so that a dry run waits for neither Ray nor MLflow

    table = run_index_sweep(options, recipe, sweep)
    sentence = f"{len(sweep.recipes)} indexes of one encoding were searched for {recipe.corpus.short_name} {split}."
    searched = (model or planned.stages[-1]).place(Place(options.storage)) / "model"
    print(ending(options, sentence, [table], model_product(searched)))
