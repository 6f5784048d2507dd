"""Reads a collection, checks and counts every row, and prints its statistics; on demand, also what some objectives read
besides passages: spans of documents, and pseudo-queries.

Bad rows are counted by kind and written to quarantine.jsonl beside the prepared corpus; nothing is lost in silence.
How spans and queries are made is set by the fields spans.* and pseudo_queries.* (`--dry-run` lists them), such as
--set spans.span_length=64 or spans.source=file:PATH; a pre-training with the same fields finds them made.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from midmask.app.job import Options, resolve_storage


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--spans", action="store_true", help="also cut documents into spans (CoT-MAE, coCondenser)")
    parser.add_argument(
        "--pseudo-queries",
        nargs="?",
        const="",
        metavar="SOURCE",
        help="also make queries for passages (CoT-MAE-qc, CoT-MoTE), from: sentences, titles, neighbours, train, "
        "file:PATH or model:FOLDER (a Hugging Face model that writes queries); default: the recipe's "
        "pseudo_queries.source",
    )
    parser.add_argument("--export", metavar="FOLDER", help="write a BEIR folder; with --spans, also spans.jsonl.gz")


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import recipe_for, run_steps
    from midmask.app.ending import Product, ending
    from midmask.artifact import Place
    from midmask.corpora import statistics_table
    from midmask.derived.preview import preview
    from midmask.experiment.export import export
    from midmask.experiment.plan import plan

    if flags.pseudo_queries:
        options = replace(options, changes={**options.changes, "pseudo_queries.source": flags.pseudo_queries})
    recipe = recipe_for(options, default="none")
    steps = plan(recipe)
    wanted = {"spans": flags.spans, "pseudo_queries": flags.pseudo_queries is not None}
    derived = [name for name in wanted if wanted[name]]
    targets = {"corpus": steps.corpus, **{name: getattr(steps, name) for name in derived}}
    targets |= {"tokens": steps.pretraining_tokens} if derived else {}
    done = run_steps(options, recipe, targets)
    if done:
        corpus = done["corpus"]
        if flags.export:
            export(steps, Place(options.storage), Place(resolve_storage(flags.export, options.home)), derived)
        facts = corpus.result
        loading = [
            "import pyarrow.parquet",
            f"passages = pyarrow.parquet.read_table('{corpus.place}/docs')",
            f"queries = pyarrow.parquet.read_table('{corpus.place}/queries.parquet')",
        ]
        sentence = f"{recipe.corpus.short_name} has {facts['passages']:,} passages and {facts['queries']:,} queries."
        tables = [statistics_table((corpus.place / "statistics.json").read_json())]
        tables += [f"{name}: {done[name].place}\n{preview(name, done[name], done['tokens'].place)}" for name in derived]
        print(ending(options, sentence, tables, Product("corpus", str(corpus.place), loading)))
