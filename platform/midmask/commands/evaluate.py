"""Commands that measure: a retriever, and the run files of other tools."""

import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from midmask.app.flags import add_zero_shot_flag
from midmask.app.job import Options, resolve_corpus
from midmask.commands import program
from midmask.errors import UserError
from midmask.tracking.names import command_over


def _evaluate_retriever_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model", metavar="NAME", help="model to evaluate: a folder, minilm, or bm25; default: the last stage"
    )
    parser.add_argument("--split", help="split whose queries are searched; default: dev, or test where there is no dev")
    add_zero_shot_flag(parser)


@program(_evaluate_retriever_flags)
def evaluate_retriever(options: Options, flags: Namespace) -> None:
    """Evaluates a retriever: searches the whole corpus for a split's queries and prints the measures, beside BM25's.

    Evaluates the encoder that the recipe's last stage gives, or the model folder of --model; with --model bm25, BM25
    alone.

    Examples:
      midmask evaluate --model minilm --corpus beir:FOLDER --split test
      midmask evaluate --recipe retromae --zero-shot beir13:FOLDER
    """
    from midmask.app.driver import choose_split, compute_or_show, ending, recipe_for, recipe_for_folder
    from midmask.experiment.evaluations import ZERO_SHOT, zero_shot
    from midmask.experiment.plan import plan
    from midmask.retrieve.bm25 import BM25

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
    evaluations = zero_shot(planned, config, names, model=model)
    done = compute_or_show(options, recipe, {**here, **evaluations})
    if done:
        from midmask.experiment.report import (
            evaluation_sentence,
            measured_sentence,
            results_table,
        )
        from midmask.store.place import Place

        corpus = recipe.corpus.short_name
        made: dict[str, object] = {}
        sentence = measured_sentence(f"{corpus} {split}", BM25, done[BM25])
        if encodes:
            sentence = evaluation_sentence(corpus, label, done[label], done[BM25], trained=model is None)
            searched = (model or planned.stages[-1]).place(Place(options.storage)) / "model"
            made["model"] = searched
        tables = [results_table({name: done[name] for name in here}, f"{corpus} {split}")]
        tables += [results_table({name: done[name] for name in evaluations}, ZERO_SHOT, names)] if evaluations else []
        made["ranked list"] = done[label].place / "runs"
        print(ending(options, sentence, tables, made))


def _evaluate_run_flags(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="TREC run file, plain or gzip'd")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        dest="names",
        metavar="NAME",
        help="of a file's system, once for each FILE; default: the file's name",
    )
    parser.add_argument("--split", help="split whose queries are measured; default: dev, or test where there is no dev")
    parser.add_argument(
        "--ties",
        choices=("midmask", "trec_eval"),
        default="midmask",
        help="order of documents of equal score: by id ascending, as for all systems (midmask, the default), or by id "
        "descending (trec_eval)",
    )


@program(_evaluate_run_flags)
def evaluate_run(options: Options, flags: Namespace) -> None:
    """Measures ranked lists of any tool, from TREC run files, and puts them onto the leaderboard.

    Each FILE (plain or gzip'd, lines `query Q0 document rank score tag`) is a system of its own, measured as it is by
    trec_eval's definitions. Documents of equal score rank as in every other evaluation, unless --ties says otherwise.

    Examples:
      midmask evaluate-run bm25.trec dense.trec --corpus beir:FOLDER --split test
      midmask evaluate-run other.trec.gz --name theirs --ties trec_eval
    """
    from midmask.app.driver import choose_split, compute_or_show, ending, recipe_for
    from midmask.core.config import override
    from midmask.experiment.evaluations import run_file_evaluation, run_names
    from midmask.experiment.training_steps import Survey

    _refuse_other_fields(options)
    files = [Path(file).expanduser().absolute() for file in flags.files]
    names = run_names(files, flags.names)
    recipe, split = choose_split(recipe_for(options, default="none"), flags.split, options, trains=False)
    recipe = override(recipe, {"evaluation.split": split})
    corpus = Survey().collection(recipe.corpus)
    evaluations = {
        name: run_file_evaluation(file, corpus, recipe.evaluation, flags.ties)
        for name, file in zip(names, files, strict=True)
    }
    done = compute_or_show(options, recipe, evaluations)
    if done:
        from midmask.experiment.report import results_table, run_files_sentence

        place = f"{recipe.corpus.short_name} {split}"
        test = command_over(options.tracking_uri, f"compare {shlex.join(done)}")
        further = {"test the differences": test} if len(done) > 1 else {}
        print(ending(options, run_files_sentence(place, done), [results_table(done, place)], further))


def _refuse_other_fields(options: Options) -> None:
    """Raises UserError for a field that changes nothing about a run file."""
    from midmask.experiment.evaluations import EVALUATION_FIELDS

    fields = [f"evaluation.{name}" for name in EVALUATION_FIELDS if name != "split"]
    for path in options.set_fields:
        if path not in fields and not path.startswith("corpus."):
            raise UserError(
                f"--set {path}: it changes nothing about a run file; only {', '.join(fields)} and corpus.* do"
            )
