"""DupMAE's hybrid vectors against their own two parts, over fine-tuning seeds, with paired intervals.

    python -m tests.speed.hybrid_parts --corpus beir:../shared/data/squad [--storage FOLDER] [PATH=VALUE …]

One middle training; for every seed the whole protocol (in-batch, mined, distilled), then dev is searched three times
from one encoding: by both views, by [CLS] alone, by the ordinary tokens alone. Seeds are averaged by query.
`--separate` also trains "CLS:768" and "OT:768" for themselves, as Table 3 of the paper does.
"""

import argparse
import sys
from pathlib import Path

from midmask.artifact import Artifact, Place
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.significance import compare
from midmask.experiment.plan import plan
from midmask.experiment.report import per_query
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS

PARTS = {"both": "all", "[CLS] of it": "dense", "ordinary tokens of it": "lexical"}
SEPARATE = {"CLS:768 for itself": "dupmae_cls", "OT:768 for itself": "dupmae_ot"}
MEASURES = ("RR@10", "nDCG@10", "R@100")


def evaluations(recipe: Recipe, views: str, seeds: range, runner: Runner) -> list[Artifact]:
    """The evaluation on dev of every seed."""
    config = recipe.evaluation.model_copy(update={"views": views, "measures": MEASURES})
    return [runner.run(plan(recipe.seeded(seed)).evaluation(config)) for seed in seeds]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("changes", nargs="*", metavar="PATH=VALUE")
    parser.add_argument("--corpus", default="pydocs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--storage", type=Path, default=Path("store"))
    parser.add_argument("--separate", action="store_true")
    options = parser.parse_args()
    changes = {"corpus.name": options.corpus, **dict(change.split("=", 1) for change in options.changes)}
    recipe = override(RECIPES["dupmae"](), changes)
    runner, seeds = Runner(Place(str(options.storage.absolute())), LOCAL, Silent()), range(options.seeds)
    found = {label: evaluations(recipe, views, seeds, runner) for label, views in PARTS.items()}
    for label, protocol in SEPARATE.items() if options.separate else ():
        alone = override(PROTOCOLS[protocol]().on(RECIPES["dupmae"](), "demo"), changes)
        found[label] = evaluations(alone, "all", seeds, runner)
    tables = {label: [per_query(artifact) for artifact in artifacts] for label, artifacts in found.items()}
    for measure in MEASURES:
        rows = []
        compared = {row.system: row for row in compare(tables, baseline="both", measure=measure)}
        for label, artifacts in found.items():
            values = ", ".join(f"{artifact.result['measures'][measure]:.4f}" for artifact in artifacts)
            row = compared.get(label)
            told = ["—", "—"]
            if row is not None:
                told = [f"{row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}]", f"{row.p_corrected:.2g}"]
            rows.append([label, values, *told])
        print(markdown([f"{measure}, dev", "by seed", "difference to both [95%]", "p (Holm)"], rows), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
