"""A finished model into MLflow's registry, with all that it was made of."""

from midmask.app.job import Options
from midmask.artifact import Artifact
from midmask.encoders.model_settings import view_widths
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.tracking import Tracker
from midmask.tracking.models import RegistryEntry, register_model


def register(options: Options, recipe: Recipe, step: Step, artifact: Artifact, alias: str) -> str:
    """Registers what a fine-tuning step made, and points the alias to it; the URI of its version.

    The lineage names every step behind the model, in order, by fingerprint.
    """
    lineage = {"recipe": recipe.name, "protocol": recipe.protocol, "corpus": recipe.corpus.short_name}
    lineage |= {f"step.{number:02d}.{each.name}": each.fingerprint for number, each in enumerate(step.upstream())}
    with Tracker(options.tracking_uri, options.home) as tracker:
        run_id = tracker.find(step.fingerprint, step=step.name).finished
    folder = (artifact.place / "model").local()
    objective = recipe.objective.name if recipe.objective else recipe.name
    entry = RegistryEntry(
        objective, recipe.backbone.name, artifact.fingerprint, view_widths(folder), lineage, run_id=run_id
    )
    return register_model(options.tracking_uri, options.home, folder, entry, alias=alias).uri
