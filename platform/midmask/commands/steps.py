"""Commands that make the steps of one recipe, from `prepare` to its fine-tuning, or one of their by-products."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from midmask.app.flags import add_zero_shot_flag
from midmask.app.job import Options, resolve_corpus, resolve_storage
from midmask.commands import program
from midmask.errors import UserError

if TYPE_CHECKING:
    from midmask.experiment.plan import Plan
    from midmask.store.artifact import Artifact


def _add_keep_stages_flag(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--keep-stages",
        metavar="FOLDER",
        help="also copy the model after each training there (pretrain, finetune.0, …), with the heads that the next "
        "one drops",
    )


def _keep_stages(planned: "Plan", options: Options, folder: str | None) -> dict[str, str]:
    """Copies the models for --keep-stages; the line that says where they lie."""
    if folder is None:
        return {}
    from midmask.experiment.plan import keep_stages
    from midmask.store.place import Place

    place = Place(resolve_storage(folder, options.home))
    keep_stages(planned.trainings, Place(options.storage), place)
    return {"stages": ", ".join(str(place / name) for name in planned.trainings)}


def _run_recipe_flags(parser: ArgumentParser) -> None:
    add_zero_shot_flag(parser)
    _add_keep_stages_flag(parser)


@program(_run_recipe_flags)
def run_recipe(options: Options, flags: Namespace) -> None:
    """Runs a whole recipe: corpus, tokens, middle training, fine-tuning stages, evaluation on dev and test, beside
    BM25.

    Examples:
      midmask run --recipe dupmae --set backbone.name=wiki-mini
      midmask run --corpus beir:FOLDER --recipe retromae --protocol dpr --dry-run
    """
    from midmask.app.driver import compute_or_show, ending, recipe_for
    from midmask.experiment.evaluations import ZERO_SHOT, zero_shot
    from midmask.experiment.plan import plan

    recipe = recipe_for(options, default="retromae")
    planned = plan(recipe)
    here = {}
    for split in ("dev", "test"):
        config = recipe.evaluation.model_copy(update={"split": split})
        here[f"{recipe.name}, {split}"] = planned.evaluation(config)
        here[f"bm25, {split}"] = planned.bm25_evaluation(config)
    names = [resolve_corpus(name, options.home) for name in flags.zero_shot]
    evaluations = zero_shot(planned, recipe.evaluation, names)
    done = compute_or_show(options, recipe, {**here, **evaluations})
    if done:
        from midmask.experiment.report import evaluation_sentence, results_table
        from midmask.store.place import Place

        corpus = recipe.corpus.short_name
        evaluation, bm25 = done[f"{recipe.name}, test"], done["bm25, test"]
        sentence = evaluation_sentence(corpus, recipe.name, evaluation, bm25, trained=True)
        tables = [results_table({name: done[name] for name in here}, corpus)]
        tables += [results_table({name: done[name] for name in evaluations}, ZERO_SHOT, names)] if evaluations else []
        model = planned.stages[-1].place(Place(options.storage)) / "model"
        made = {"model": model, **_keep_stages(planned, options, flags.keep_stages)}
        print(ending(options, sentence, tables, made))


def _prepare_corpus_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--export", metavar="FOLDER", help="write the corpus as a BEIR folder")


@program(_prepare_corpus_flags)
def prepare_corpus(options: Options, flags: Namespace) -> None:
    """Reads a collection, checks and counts every row, and prints its statistics.

    Bad rows are counted by kind and written to quarantine.jsonl beside the prepared corpus; nothing is lost in silence.

    Examples:
      midmask prepare --corpus docs:FOLDER
      midmask prepare --corpus ir_datasets:beir/scifact --allow-download --export scifact
    """
    from midmask.app.driver import compute_or_show, ending, recipe_for
    from midmask.corpora.assemble import statistics_table
    from midmask.corpora.writer import export_beir
    from midmask.experiment.plan import plan
    from midmask.store.place import Place

    recipe = recipe_for(options, default="none")
    done = compute_or_show(options, recipe, {"corpus": plan(recipe).corpus})
    if done:
        corpus = done["corpus"]
        if flags.export:
            export_beir(corpus.place, Place(resolve_storage(flags.export, options.home)))
        facts = corpus.result
        sentence = f"{recipe.corpus.short_name} has {facts['passages']:,} passages and {facts['queries']:,} queries."
        table = statistics_table((corpus.place / "statistics.json").read_json())
        print(ending(options, sentence, [table], {"corpus": corpus.place}))


@program()
def pretrain(options: Options, flags: Namespace) -> None:
    """Middle training: trains an encoder on the passages of a corpus with one of the objectives.

    The result is a Hugging Face folder that transformers.AutoModel loads, and beside it the heads that fine-tuning
    throws away.

    Examples:
      midmask pretrain --recipe dupmae --corpus docs:FOLDER
      midmask pretrain --set backbone.name=wiki-mini --set pretrain.steps=2000
    """
    from midmask.app.driver import compute_or_show, ending, recipe_for
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan
    from midmask.training.trace import LAST_STEPS

    recipe = recipe_for(options, default="retromae")
    steps = plan(recipe)
    done = compute_or_show(options, recipe, {"encoder": steps.pretrained or steps.initial})
    if not done:
        return
    encoder, tables = done["encoder"], []
    if steps.pretrained is None:
        sentence = f"Recipe {recipe.name} has no middle training; this is the encoder that its fine-tuning starts from."
    else:
        result = encoder.result
        sentence = (
            f"{recipe.name} has loss {result['loss']:.4f} (mean of the last {LAST_STEPS} steps) after "
            f"{result['steps']:,} steps of middle training."
        )
        losses = {"loss": encoder.result["loss"], **encoder.result["parts"]}
        rows = [(name, f"{value:.4f}") for name, value in losses.items()]
        rows += [(name, f"{encoder.result[name]:,.0f}") for name in ("steps", "tokens", "seconds")]
        tables = [markdown(["pre-training", recipe.name], rows)]
    print(ending(options, sentence, tables, {"model": encoder.place / "model"}))


def _finetune_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--register",
        nargs="?",
        const="candidate",
        metavar="ALIAS",
        help="put the last stage's model into MLflow's registry under this alias; default: candidate",
    )
    _add_keep_stages_flag(parser)


@program(_finetune_flags)
def finetune(options: Options, flags: Namespace) -> None:
    """Fine-tunes a bi-encoder on the train queries of a corpus, in the stages of a recipe or of --protocol.

    The recipe's middle training comes first, unless it is done already; `--recipe none --set backbone.name=FOLDER`
    fine-tunes any model folder. The result is a folder that sentence-transformers loads.

    Examples:
      midmask finetune --recipe none --set backbone.name=FOLDER --corpus beir:FOLDER
      midmask finetune --protocol ance --register candidate
    """
    from midmask.app.driver import compute_or_show, ending, recipe_for
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan

    recipe = recipe_for(options, default="retromae")
    planned = plan(recipe)
    steps = {f"stage {number}": step for number, step in enumerate(planned.stages, start=1)}
    done = compute_or_show(options, recipe, steps)
    if done:
        rows = [
            (name, f"{stage.result['loss']:.4f}", str(stage.result["steps"]), f"{stage.result['seconds']:.0f}")
            for name, stage in done.items()
        ]
        table = markdown(["fine-tuning", "loss", "steps", "seconds"], rows)
        name, last = list(done.items())[-1]
        sentence = f"{recipe.name} has loss {last.result['loss']:.4f} after {name} of its fine-tuning."
        made = {"model": last.place / "model", **_keep_stages(planned, options, flags.keep_stages)}
        if flags.register:
            from midmask.app.run import register  # here, so that a dry run waits for neither Ray nor MLflow

            uri = register(options, recipe, steps[name], last, flags.register)
            made["registered"] = f"{uri}@{flags.register}"
        print(ending(options, sentence, [table], made))


def _mine_negatives_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model", metavar="NAME", help="what ranks: a model folder, minilm, or bm25; default: the recipe's first stage"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="also write texts for sentence-transformers' trainers: JSON lines of anchor, positive, negative_1, …",
    )


@program(_mine_negatives_flags)
def mine_negatives(options: Options, flags: Namespace) -> None:
    """Mines hard negatives: ranks a corpus for the train queries with a pool of faiss actors, and draws from it.

    Searches with the encoder that the recipe's first stage gives; with --model, no recipe is needed. Writes the
    negatives as Parquet and in the msmarco-hard-negatives layout (jsonl). Vectors and ranked list are kept, so that
    mining again with other ranks, numbers or seeds takes seconds.

    How they are chosen: --set 'stages.*.mine.per_query=5', min_rank, max_rank, filters.relative_margin and more.

    Examples:
      midmask mine --model minilm --corpus beir:FOLDER --out negatives.jsonl
      midmask mine --recipe retromae_ance --set stages.1.mine.per_query=15
    """
    from midmask.app.driver import compute_or_show, ending, recipe_for, recipe_for_folder
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan
    from midmask.retrieve.bm25 import BM25

    recipe = recipe_for(options, default="none" if flags.model else "retromae_ance")
    by_bm25 = flags.model == BM25
    recipe, model = recipe_for_folder(recipe, None if by_bm25 else flags.model, options)
    steps, config = plan(recipe), recipe.stages[-1].mine
    mined = steps.mining(config, model=None if by_bm25 else model or steps.stages[0])
    done = compute_or_show(options, recipe, {"negatives": mined})
    if done:
        negatives = done["negatives"]
        made = {"negatives": f"{negatives.place}/negatives.jsonl.gz"}
        if flags.out:
            made["training data"] = _write_tuples(negatives, steps, config.per_query, options, flags.out)
        rows = [(name, str(value)) for name, value in negatives.result.items()]
        count, queries = negatives.result["negatives"], negatives.result["queries"]
        sentence = f"{count:,} negatives were mined for {queries:,} queries of {config.split}."
        print(ending(options, sentence, [markdown(["mining", "value"], rows)], made))


def _write_tuples(negatives: "Artifact", steps: "Plan", per_query: int, options: Options, out: str) -> str:
    """Writes the negatives as texts for trainers of other libraries; the file and its number of lines."""
    from midmask.exchange.training_tuples import training_tuples, write_training_tuples
    from midmask.store.artifact import load
    from midmask.store.place import Place

    corpus, place = load(steps.corpus.place(Place(options.storage))), Place(resolve_storage(out, options.home))
    tuples = training_tuples(negatives, corpus, titles=steps.tokens.config.titles)  # type: ignore[attr-defined]
    return f"{place}, {write_training_tuples(tuples, per_query, place):,} lines"


def _train_teacher_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--stage", type=int, metavar="N", help="stage, from 0; default: the last with a teacher")


@program(_train_teacher_flags)
def train_teacher(options: Options, flags: Namespace) -> None:
    """Trains the teacher of a recipe's fine-tuning stage, and scores the stage's candidates with it.

    A teacher is a cross-encoder; `--set stages.2.teacher.folder=FOLDER` takes a Hugging Face sequence-classification
    folder instead. What it learns from (negatives, and the stages that mine them) comes first, unless it is done
    already.

    Examples:
      midmask teach --protocol dupmae --corpus beir:FOLDER
      midmask teach --set 'stages.2.teacher.backbone={"name": "minilm"}'
    """
    from midmask.app.driver import compute_or_show, ending, recipe_for
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan

    recipe = recipe_for(options, default="dupmae")
    taught = {number: step for number, step in enumerate(plan(recipe).stages) if "scores" in step.inputs}
    number = max(taught, default=None) if flags.stage is None else flags.stage
    if number not in taught:
        choices = ", ".join(map(str, taught)) or "none; choose a protocol that distils, such as --protocol dupmae"
        raise UserError(f"--stage {number}: the recipe {recipe.name} has no teacher there. With one: {choices}.")
    scores = taught[number].inputs["scores"]
    done = compute_or_show(options, recipe, {"teacher": scores.inputs["teacher"], "scores": scores})
    if done:
        rows = [(step, name, str(value)) for step, artifact in done.items() for name, value in artifact.result.items()]
        sentence = f"The teacher of stage {number} of {recipe.name} has scored the stage's candidates."
        made = {"teacher": done["teacher"].place / "model", "scores": done["scores"].place / "scores.parquet"}
        print(ending(options, sentence, [markdown(["step", "result", "value"], rows)], made))


# The sources of queries show a writer the title and the text; the recipes' own tokens are those of a demo.
GENERATOR = {
    "tokens.titles": "true",
    "tokens.vocabulary_size": "8192",
    "tokens.max_length": "128",
    "tokens.query_length": "32",
    "stages.0.train.steps": "2000",
    "stages.0.train.batch_size": "32",
    "stages.0.train.learning_rate": "1e-3",
}
"""Field -> its value in the training of a generator, unless another is given."""


@program()
def train_generator(options: Options, flags: Namespace) -> None:
    """Trains a model that writes queries for passages, on the train queries of a labelled collection.

    Its folder is a source of queries: `model:FOLDER`, for `pseudo_queries.source` and wherever queries are made. It is
    an encoder-decoder that starts from the recipe's backbone. A pre-trained encoder (--set backbone.name=minilm --set
    tokens.tokenizer=minilm) stays as it is, and the decoder learns to read it. Length, batch and optimiser are the
    fields stages.0.train.*: 2,000 steps of 32 queries unless --set says otherwise.

    Examples:
      midmask train-generator --corpus beir:FOLDER
      midmask train-generator --set backbone.name=minilm --set tokens.tokenizer=minilm
    """
    from midmask.app.driver import compute_or_show, ending, recipe_for
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.graph import Step
    from midmask.experiment.plan import plan
    from midmask.objectives.finetuning.generation import QueryGeneration
    from midmask.queries.query_model import GeneratorConfig

    recipe = recipe_for(replace(options, set_fields={**GENERATOR, **options.set_fields}), default="none")
    steps, tokens = plan(recipe), recipe.tokens
    if tokens.title_join != "space":
        raise UserError(
            f"tokens.title_join = {tokens.title_join}: a generator reads 'title text' as one text; leave it at space"
        )
    config = GeneratorConfig(
        backbone=recipe.backbone,
        loss=QueryGeneration.Config(frozen_encoder=recipe.backbone.is_pretrained),
        train=recipe.stages[0].train.model_copy(update={"precision": steps.precision}),
        query_length=tokens.query_length,
        passage_length=tokens.max_length,
    )
    inputs = {"corpus": steps.corpus, "tokens": steps.tokens}
    generator = Step("generator", config, inputs, content=steps.initial.content, path="stages.0.train")
    done = compute_or_show(options, recipe, {"generator": generator})
    if done:
        model = done["generator"].place / "model"
        rows = [(name, str(value)) for name, value in done["generator"].result.items()]
        sentence = f"The generator of queries was trained for {done['generator'].result['steps']:,} steps."
        made = {"model": model, "as a source of queries": f"model:{model}"}
        print(ending(options, sentence, [markdown(["generator", "value"], rows)], made))
