"""Trains the teacher of a recipe's fine-tuning stage, and scores the stage's candidates with it.

A teacher is a cross-encoder; `--set stages.2.teacher.folder=FOLDER` takes a Hugging Face sequence-classification folder
instead. What it learns from (negatives, and the stages that mine them) comes first, unless it is done already.
"""

from argparse import ArgumentParser, Namespace

from midmask.app.job import Options


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--stage", type=int, metavar="N", help="stage, from 0; default: the last with a teacher")


def work(options: Options, flags: Namespace) -> None:
    from midmask.app.driver import recipe_for, run_steps
    from midmask.app.ending import ending, model_product
    from midmask.errors import UserError
    from midmask.evaluation.rendering import markdown
    from midmask.experiment.plan import plan

    recipe = recipe_for(options, default="dupmae")
    taught = {number: step for number, step in enumerate(plan(recipe).stages) if "scores" in step.inputs}
    number = max(taught, default=None) if flags.stage is None else flags.stage
    if number not in taught:
        known = ", ".join(map(str, taught)) or "none; choose a protocol that distils, such as --protocol dupmae"
        raise UserError(f"--stage {number}: the recipe {recipe.name} has no teacher there. With one: {known}.")
    scores = taught[number].inputs["scores"]
    done = run_steps(options, recipe, {"teacher": scores.inputs["teacher"], "scores": scores})
    if done:
        rows = [(step, name, str(value)) for step, artifact in done.items() for name, value in artifact.result.items()]
        sentence = f"The teacher of stage {number} of {recipe.name} has scored the stage's candidates."
        teacher = model_product(done["teacher"].place / "model", "teacher")
        further = {"scores": f"{done['scores'].place}/scores.parquet"}
        print(ending(options, sentence, [markdown(["step", "result", "value"], rows)], teacher, further=further))
