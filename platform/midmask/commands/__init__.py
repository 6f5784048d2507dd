"""What can be typed: `midmask NAME FLAGS`, or `jobs/FILE.py FLAGS` for a job. Each command is a module of this package
with a docstring (its --help), `add_flags` if it has flags of its own, and `work`; heavy imports are in `work`.
"""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from midmask.registry import Registry


@dataclass(frozen=True)
class Command:
    """module: its name in this package, for a job the name of its file. summary: its line in the list of commands."""

    module: str
    summary: str

    def load(self) -> ModuleType:
        return import_module(f"{__name__}.{self.module}")


JOBS = Registry(
    "command",
    {
        "run": Command("run_recipe", "a whole recipe: middle training, fine-tuning, evaluation on dev and test"),
        "sweep": Command("sweep", "a search space of a recipe's fields"),
        "sweep-index": Command("sweep_index", "indexes of one encoder's vectors: recall, speed and bytes"),
        "benchmark": Command("benchmark_middle_training", "middle trainings under the same conditions"),
        "choose": Command("choose_middle_training", "from documents without labels to a verdict and a model"),
        "prepare": Command("prepare_corpus", "read and check a collection, or export it"),
        "pretrain": Command("pretrain", "the middle training alone"),
        "finetune": Command("finetune", "the fine-tuning, and what comes before it"),
        "mine": Command("mine_negatives", "hard negatives"),
        "teach": Command("train_teacher", "a cross-encoder, and its scores"),
        "train-generator": Command("train_generator", "a model that writes queries for passages"),
        "evaluate": Command("evaluate_retriever", "a recipe's retriever, or a model folder"),
        "evaluate-run": Command("evaluate_run", "ranked lists of any tool, from TREC run files"),
    },
)
"""Commands that run on a cluster or start a local Ray."""

TOOLS = Registry(
    "command",
    {
        "search": Command("search", "type a query: the systems of a verdict, or a model over a collection"),
        "upload": Command("upload", "a collection's vectors to a PostgreSQL server with pgvector"),
        "ui": Command("ui", "MLflow's pages over the tracked runs; with --verdict, search and judge"),
        "leaderboard": Command("leaderboard", "the leaderboard, comparisons and training curves"),
        "calibrate": Command("calibrate", "how far verdicts can be believed, from revealed ones"),
        "compare": Command("compare", "evaluated systems on the same queries: which is better, and by how much"),
        "import-mteb": Command("import_mteb", "results of MTEB, as rows of the leaderboard"),
        "export-mteb": Command("export_mteb", "evaluated systems, as MTEB's result files"),
        "doctor": Command("doctor", "what is installed, and what the stores hold"),
        "gc": Command("gc", "what the stores no longer need, listed or deleted"),
    },
)
"""Commands that only look, `upload`, which writes to a server, and `gc`, which deletes if it is asked to."""
