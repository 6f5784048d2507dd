"""The artifacts behind a tracked number, read from where they lie: an evaluation, what it judged, all steps before it.

A record names the places of its inputs, so the way back needs neither a plan nor the code of that time. Artifacts may
have been deleted since (encodings usually are), or lie on another machine: from such a one no way leads further.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from midmask.errors import UserError
from midmask.retrieve.run_file import TIES_PARAM
from midmask.store.artifact import RECORD, Artifact, load
from midmask.store.place import Place
from midmask.tracking.names import ARTIFACT, RUN_FILE, artifact_key
from midmask.tracking.reading import TrackedRow


def artifact_place(run: TrackedRow, corpus: str, split: str) -> Place | None:
    """The place of a run's evaluation on a corpus and split; None if the run does not name it."""
    place = run.tags.get(artifact_key(corpus, split)) or run.tags.get(ARTIFACT)
    return Place(place) if place else None


def artifact_of(place: Place) -> Artifact | None:
    """The artifact with its record; None if that cannot be read from here: deleted, or on another machine."""
    try:
        return load(place) if (place / RECORD).exists() else None
    except (OSError, ValueError, UserError):
        return None


def artifacts_behind(place: Place) -> list[Artifact]:
    """The artifact at `place`, last, and all that can be reached of what it was made of, each after its inputs."""
    seen: set[str] = set()
    artifacts: list[Artifact] = []

    def walk(place: Place) -> None:
        artifact = None if place.uri in seen else artifact_of(place)
        seen.add(place.uri)
        if artifact is not None:
            for source in inputs_of(artifact).values():
                walk(source)
            artifacts.append(artifact)

    walk(place)
    return artifacts


def inputs_of(artifact: Artifact) -> dict[str, Place]:
    """Role -> the place of the artifact that an artifact was made of."""
    return {role: Place(str(uri)) for role, uri in artifact.record.get("inputs", {}).items()}


def corpus_name(artifact: Artifact) -> str:
    """The name of the collection that a step prepared; empty for any other step."""
    return str(artifact.record["config"].get("name", "")) if artifact.record["step"] == "prepare" else ""


def command_again(run: TrackedRow, recipe: str, split: str, artifacts: Sequence[Artifact]) -> list[str]:
    """The job and its flags that evaluate a run's system again, one text each, not quoted.

    Args:
        recipe: path of the file with the run's recipe.
        split: whose queries were searched.
        artifacts: behind the run's evaluation, as far as they can be read.
    """
    storage = "/".join(run.tags.get(ARTIFACT, "").split("/")[:-2])  # without STEP/FINGERPRINT
    flags = {"--recipe": recipe, "--split": split, "--storage": storage}
    if RUN_FILE in run.tags:
        flags |= {"--name": run.tags["midmask.recipe"], "--ties": run.params[TIES_PARAM]}
        job = ["jobs/evaluate_run.py", run.tags[RUN_FILE]]
    else:
        job = ["jobs/evaluate_retriever.py"]
        searched = inputs_of(artifacts[-1]).get("corpus") if artifacts else None
        name = next((corpus_name(artifact) for artifact in artifacts if artifact.address == searched), "")
        flags["--zero-shot"] = name if name != run.params.get("corpus.name", name) else ""
        adopted = [artifact for artifact in artifacts if artifact.record["step"] == "adopt"]
        flags["--model"] = str(adopted[0].record["config"]["folder"]) if adopted else ""
    return [*job, *(part for flag, value in flags.items() if value for part in (flag, value))]


@dataclass(frozen=True)
class Evaluated:
    """The artifacts and settings that an evaluation's record names."""

    corpus: Artifact | None = None  # None where it cannot be reached
    ranked: Artifact | None = None  # None where it cannot be reached
    split: str = ""  # split of the queries; the evaluation of a slice lies with its split
    depth: int | None = None  # length of the list that was judged


def evaluated(place: Place | None) -> Evaluated:
    """The artifacts that can be reached from an evaluation's artifact.

    Args:
        place: None for a run that does not tell where its artifact lies.
    """
    evaluation = artifact_of(place) if place else None
    if evaluation is None:
        return Evaluated()
    sources = inputs_of(evaluation)
    corpus, ranked = (artifact_of(sources[role]) if role in sources else None for role in ("corpus", "ranked"))
    return Evaluated(corpus, ranked, str(evaluation.result.get("split", "")), evaluation.record["config"].get("depth"))
