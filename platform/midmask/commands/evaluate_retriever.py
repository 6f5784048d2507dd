"""Evaluates a retriever: searches the whole corpus for a split's queries and prints the measures, beside BM25's.

Evaluates the encoder that the recipe's last stage gives, or the model folder of --model; with --model bm25, BM25 alone.
"""

from argparse import ArgumentParser, Namespace

from midmask.app.flags import add_zero_shot_flag
from midmask.app.job import Options, resolve_corpus


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model", metavar="NAME", help="model to evaluate: a folder, minilm, or bm25; default: the last stage"
    )
    parser.add_argument("--split", help="split whose queries are searched; default: dev, or test where there is no dev")
    add_zero_shot_flag(parser)


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import choose_split, recipe_for, recipe_for_folder, run_steps
    from midmask.benchmark.design import BM25
    from midmask.errors import UserError
    from midmask.experiment.plan import plan
    from midmask.experiment.zero_shot import zero_shot

    encodes = flags.model != BM25
    if flags.zero_shot and not encodes:
        raise UserError(
            f"--zero-shot: it evaluates an encoder; for BM25 give each collection as --corpus, or not {BM25}"
        )
    folder = flags.model if encodes else None
    recipe, model = recipe_for_folder(recipe_for(options, default="retromae"), folder, options)
    recipe, split = choose_split(recipe, flags.split, options, trains=flags.model is None)
    config = recipe.evaluation.model_copy(update={"split": split})
    planned, label = plan(recipe), config.name_of(flags.model or recipe.name) if encodes else BM25
    here = {label: planned.evaluation(config, model=model)} if encodes else {}
    here[BM25] = planned.bm25_evaluation(config)
    names = [resolve_corpus(name, options.home) for name in flags.zero_shot]
    there = zero_shot(planned, config, names, model=model)
    done = run_steps(options, recipe, {**here, **there})
    if done:
        from midmask.app.ending import ending, model_product
        from midmask.artifact import Place
        from midmask.experiment.report import (
            evaluation_sentence,
            evaluations_table,
            measured_sentence,
            zero_shot_table,
        )

        corpus, products = recipe.corpus.short_name, []
        sentence = measured_sentence(f"{corpus} {split}", BM25, done[BM25])
        if encodes:
            sentence = evaluation_sentence(corpus, label, done[label], done[BM25], trained=model is None)
            searched = (model or planned.stages[-1]).place(Place(options.storage)) / "model"
            products = [model_product(searched)]
        tables = [evaluations_table(f"{corpus} {split}", {name: done[name] for name in here})]
        tables += [zero_shot_table(names, {name: done[name] for name in there})] if there else []
        further = {"ranked list": f"{done[label].place}/runs"}
        print(ending(options, sentence, tables, *products, further=further))
