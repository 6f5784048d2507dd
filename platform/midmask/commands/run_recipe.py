"""Runs a whole recipe: corpus, tokens, middle training, fine-tuning stages, evaluation on dev and test, beside BM25."""

from argparse import ArgumentParser, Namespace

from midmask.app.flags import add_zero_shot_flag
from midmask.app.job import Options, resolve_corpus


def add_flags(parser: ArgumentParser) -> None:
    add_zero_shot_flag(parser)


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import recipe_for, run_steps
    from midmask.experiment.plan import plan
    from midmask.experiment.zero_shot import zero_shot

    recipe = recipe_for(options, default="retromae")
    planned = plan(recipe)
    here = {}
    for split in ("dev", "test"):
        config = recipe.evaluation.model_copy(update={"split": split})
        here[f"{recipe.name}, {split}"] = planned.evaluation(config)
        here[f"bm25, {split}"] = planned.bm25_evaluation(config)
    names = [resolve_corpus(name, options.home) for name in flags.zero_shot]
    there = zero_shot(planned, recipe.evaluation, names)
    done = run_steps(options, recipe, {**here, **there})
    if done:
        from midmask.app.ending import ending, model_product
        from midmask.artifact import Place
        from midmask.experiment.report import evaluation_sentence, evaluations_table, zero_shot_table

        corpus = recipe.corpus.short_name
        own, bm25 = done[f"{recipe.name}, test"], done["bm25, test"]
        sentence = evaluation_sentence(corpus, recipe.name, own, bm25, trained=True)
        tables = [evaluations_table(corpus, {name: done[name] for name in here})]
        tables += [zero_shot_table(names, {name: done[name] for name in there})] if there else []
        model = planned.stages[-1].place(Place(options.storage)) / "model"
        print(ending(options, sentence, tables, model_product(model)))
