#!/usr/bin/env python3
"""Reads a collection, checks and counts every row, and prints its statistics.

Bad rows are counted by kind and written to quarantine.jsonl beside the prepared corpus; nothing is lost in silence.
"""

from argparse import Namespace

from _entry import run

from midmask.cluster.job import Options


def work(options: Options, flags: Namespace) -> None:
    from midmask.cluster.driver import recipe_for, run_steps
    from midmask.corpora import statistics_table
    from midmask.recipes.plan import plan

    recipe = recipe_for(options, default="none")
    done = run_steps(options, recipe, {"corpus": plan(recipe).corpus})
    if done:
        corpus = done["corpus"]
        print(statistics_table((corpus.place / "statistics.json").read_json()))
        print(f"\ncorpus: {corpus.place}\n{options.where_to_look()}")


if __name__ == "__main__":
    run(work, __doc__)
