"""What can be typed: `midmask NAME FLAGS`, or `jobs/FILE.py FLAGS` for a job. Each command is a function of a module of
this package, made a `Program` by the decorator `program`; heavy imports are in the function.
"""

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc

from midmask.core.registry import Registry


@dataclass(frozen=True)
class Program:
    """The code of a command: its help text, its flags and the function that runs it."""

    help: str  # shown by --help
    add_flags: Callable[[ArgumentParser], None]  # adds the command's own flags to a parser
    work: Callable[..., None]  # takes the shared options, if the command is a job, and the flags


def program(
    add_flags: Callable[[ArgumentParser], None] = lambda parser: None,
) -> Callable[[Callable[..., None]], Program]:
    """Decorator that makes a `Program` of the function that runs a command; its docstring is what --help shows."""
    return lambda work: Program(cleandoc(work.__doc__ or ""), add_flags, work)


@dataclass(frozen=True)
class Command:
    """An entry in the list of commands; its program is imported when it is needed."""

    module: str  # a module of this package
    program: str  # its name in that module, and of a job's file
    summary: str  # the command's line in the list of commands

    def load(self) -> Program:
        loaded: Program = getattr(import_module(f"{__name__}.{self.module}"), self.program)
        return loaded


JOBS = Registry(
    "command",
    {
        "demo": Command("experiments", "demo", "five minutes: does RetroMAE help a general language model to search?"),
        "run": Command(
            "steps", "run_recipe", "a whole recipe: middle training, fine-tuning, evaluation on dev and test"
        ),
        "sweep": Command("experiments", "sweep", "a search space of a recipe's fields"),
        "benchmark": Command("experiments", "benchmark_middle_training", "middle trainings under the same conditions"),
        "choose": Command(
            "experiments", "choose_middle_training", "from documents without labels to a verdict and a model"
        ),
        "prepare": Command("steps", "prepare_corpus", "read and check a collection, or export it"),
        "pretrain": Command("steps", "pretrain", "the middle training alone"),
        "finetune": Command("steps", "finetune", "the fine-tuning, and what comes before it"),
        "mine": Command("steps", "mine_negatives", "hard negatives"),
        "teach": Command("steps", "train_teacher", "a cross-encoder, and its scores"),
        "train-generator": Command("steps", "train_generator", "a model that writes queries for passages"),
        "evaluate": Command("evaluate", "evaluate_retriever", "a recipe's retriever, or a model folder"),
        "evaluate-run": Command("evaluate", "evaluate_run", "ranked lists of any tool, from TREC run files"),
    },
)
"""Commands that run on a cluster or start a local Ray."""

TOOLS = Registry(
    "command",
    {
        "search": Command("search", "search", "type a query: the systems of a verdict, or a model over a collection"),
        "ui": Command("tracked", "ui", "MLflow's pages over the tracked runs"),
        "leaderboard": Command("tracked", "leaderboard", "leaderboard, comparisons and sweeps; searches of a verdict"),
        "compare": Command(
            "tracked", "compare", "evaluated systems on the same queries: which is better, and by how much"
        ),
        "export-mteb": Command("tracked", "export_mteb", "evaluated systems, as MTEB's result files"),
        "doctor": Command("doctor", "doctor", "what is installed, and what the stores hold"),
        "gc": Command("gc", "gc", "what the stores no longer need, listed or deleted"),
    },
)
"""Commands that only look, and `gc`, which deletes if it is asked to."""
