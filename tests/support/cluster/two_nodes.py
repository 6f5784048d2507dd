"""Run by test_two_nodes: prepare, tokenise, pre-train, fine-tune, mine and fine-tune again on a cluster of two nodes.

Arguments: corpus, storage URI, and a temporary folder for each node. Prints one JSON line.
"""

import json
import sys

import ray
from ray.cluster_utils import Cluster

from midmask.artifact import Place
from midmask.backend.makers import cluster_makers
from midmask.backend.resources import alive_nodes
from midmask.experiment.plan import plan
from midmask.experiment.run import Maker, Runner, Silent
from midmask.experiment.schema import Recipe, StageConfig
from midmask.identity import override
from midmask.recipes import RECIPES


def two_stages(corpus: str) -> Recipe:
    """RetroMAE in miniature, and a second stage with negatives mined by the first."""
    small = {
        "corpus.name": corpus,
        "tokens.vocabulary_size": 800,
        "pretrain.steps": 6,
        "pretrain.batch_size": 16,
        "stages.0.train.steps": 6,
        "stages.0.train.batch_size": 16,
    }
    recipe = override(RECIPES["retromae"](), small)
    (first,) = recipe.stages
    second = StageConfig(train=first.train, negatives="mined", per_query=2)
    return recipe.model_copy(update={"stages": (first, second)})


def results(makers: dict[str, Maker], recipe: Recipe, storage: Place) -> dict[str, dict[str, object]]:
    """Every step's results by role, on the steps of the whole plan."""
    runner, steps = Runner(storage, makers, Silent()), plan(recipe)
    runner.run(steps.stages[-1])
    mined = steps.stages[-1].inputs["negatives"]
    named = {"corpus": steps.corpus, "tokens": steps.tokens, "pretrain": steps.pretrained, "mined": mined}
    named |= {"first": steps.stages[0], "second": steps.stages[-1]}
    return {
        role: {**runner.run(step).result, "place": str(step.place(storage))} for role, step in named.items() if step
    }


def main(corpus: str, storage: str, head_folder: str, node_folder: str) -> None:
    nodes = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
    cluster = Cluster(
        initialize_head=True, head_node_args={**nodes, "temp_dir": head_folder, "include_dashboard": False}
    )
    cluster.add_node(**nodes, temp_dir=node_folder)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    found = results(cluster_makers(2), two_stages(corpus), Place(storage))
    print(json.dumps({"nodes": len(alive_nodes()), "results": found}))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
