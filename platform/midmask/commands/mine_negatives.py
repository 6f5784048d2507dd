"""Mines hard negatives: ranks a corpus for the train queries with a pool of faiss actors, and draws from it.

Searches with the encoder that the recipe's first stage gives, or with the model folder of --model. Writes the negatives
as Parquet and in the msmarco-hard-negatives layout (jsonl). Vectors and ranked list are kept, so that mining again with
other ranks, numbers or seeds takes seconds.
"""

from argparse import ArgumentParser, Namespace

from midmask.app.job import Options


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="FOLDER", help="model folder; default: the recipe's first stage")


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import recipe_for, recipe_for_folder, run_steps
    from midmask.app.ending import Product, ending
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan

    recipe, model = recipe_for_folder(recipe_for(options, default="retromae_ance"), flags.model, options)
    steps = plan(recipe)
    mined = steps.mining(recipe.stages[-1].mine, model=model or steps.stages[0])
    done = run_steps(options, recipe, {"negatives": mined})
    if done:
        result = done["negatives"].result
        rows = [(name, str(value)) for name, value in result.items()]
        file = f"{done['negatives'].place}/negatives.jsonl.gz"
        loading = [
            "import gzip, json",
            f"file = gzip.open({file!r}, 'rt')",
            "negatives = [json.loads(line) for line in file]",
        ]
        sentence = f"{result['negatives']:,} negatives were mined for {result['queries']:,} train queries."
        print(ending(options, sentence, [markdown(["mining", "value"], rows)], Product("negatives", file, loading)))
