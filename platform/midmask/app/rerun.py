"""The command that makes a tracked run's result again, from the run's tags and params.

A run's params are its whole recipe. The command names the recipe and the protocol, and sets only what differs from them
as this version of the code has them, so that it can be read. The recipe that the command would make is then laid beside
the params, and whatever it does not reach is told.

As a program it reads the fields of `Wanted` and writes those of `Rerun`, both as JSON, for pages that import no torch:

python -m midmask.app.rerun < wanted.json
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from midmask.app.run_contents import MODEL_PARAM
from midmask.core.config import flatten, override
from midmask.errors import UserError
from midmask.experiment.kinds import KINDS
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import adopted
from midmask.recipes import RECIPES
from midmask.recipes.build import at_scale, with_changes
from midmask.recipes.protocol_configs import Scale
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.run_file import COPIES_PARAM, DIGEST_PARAM, run_digest
from midmask.tracking.names import ARTIFACT, RUN_FILE

SCALES: tuple[Scale, ...] = ("demo", "published")


@dataclass(frozen=True)
class Wanted:
    """A tracked run whose result is to be made again."""

    tags: Mapping[str, str]  # as MLflow stores them
    params: Mapping[str, str]  # as MLflow stores them
    split: str = ""  # whose queries were searched; empty: the run is no evaluation
    zero_shot: str = ""  # the collection, if it is not the recipe's own
    model: str = ""  # the folder, if one was given in place of the recipe's last stage


@dataclass(frozen=True)
class Rerun:
    """A command that makes a run's result again."""

    arguments: tuple[str, ...]  # the job and its flags, one text each, not quoted
    differs: tuple[str, ...] = ()  # fields whose values the command does not reach; empty if it is exact
    newer: tuple[str, ...] = ()  # fields that the run did not have yet; they keep their present values


@dataclass(frozen=True)
class _Base:
    """A recipe and the flags that name it, as the base of changes."""

    flags: tuple[str, ...]
    recipe: Recipe
    scale: Scale


def rerun(wanted: Wanted) -> Rerun:
    """The shortest exact command; where none is exact, the one that comes nearest.

    Raises:
        UserError: if the run names no recipe that this version has.
    """
    if RUN_FILE in wanted.tags:
        return _rerun_run_file(wanted)
    params = {path: text for path, text in wanted.params.items() if path != MODEL_PARAM}
    commands = [_from(base, params) for base in _bases(wanted)]
    nearest = min(commands, key=lambda command: (len(command.differs), len(command.arguments)))
    changed = (MODEL_PARAM,) if _has_changed(wanted) else ()
    kind = KINDS.get(wanted.tags.get("midmask.step", ""))
    job = (kind and kind.job) or "evaluate_retriever"
    evaluation_flags = {"--split": wanted.split, "--zero-shot": wanted.zero_shot, "--model": wanted.model}
    flag_values = {**(evaluation_flags if job == "evaluate_retriever" else {}), "--storage": _storage(wanted)}
    flags = [part for flag, value in flag_values.items() if value for part in (flag, value)]
    return Rerun((f"jobs/{job}.py", *nearest.arguments, *flags), (*nearest.differs, *changed), nearest.newer)


def _has_changed(wanted: Wanted) -> bool:
    """Whether the model folder of an evaluation is not what it was."""
    return MODEL_PARAM in wanted.params and adopted(wanted.model).fingerprint != wanted.params[MODEL_PARAM]


def _storage(wanted: Wanted) -> str:
    """The store of the run's artifact, empty if the run has none."""
    return wanted.tags.get(ARTIFACT, "").rpartition("/")[0].rpartition("/")[0]


def _rerun_run_file(wanted: Wanted) -> Rerun:
    """The command for the measures of a run file; not exact if the file has changed since."""
    file, params = wanted.tags[RUN_FILE], wanted.params
    corpus = params["corpus.name"]
    default = _texts(override(RECIPES["none"](), {"corpus.name": corpus, "evaluation.split": wanted.split}))
    changes = {path: text for path, text in params.items() if default.get(path, text) != text}
    try:
        differs = () if run_digest(file) == params[DIGEST_PARAM] else (DIGEST_PARAM,)
    except UserError:
        differs = (DIGEST_PARAM,)
    flags = {"--name": wanted.tags["midmask.recipe"], "--corpus": corpus, "--split": wanted.split}
    flags |= {"--ties": params["run.ties"], "--storage": _storage(wanted)}
    named = [part for flag, value in flags.items() for part in (flag, value)]
    named += ["--leave-out-copies"] if COPIES_PARAM in params else []
    settings = [part for path, text in changes.items() for part in ("--set", f"{path}={text}")]
    return Rerun(("jobs/evaluate_run.py", file, *named, *settings), differs)


def _bases(wanted: Wanted) -> Iterator[_Base]:
    """The recipe by itself, and with the protocol in each of its scales."""
    name, protocol = wanted.params.get("name", ""), wanted.params.get("protocol", "")
    recipe = RECIPES[name or wanted.tags.get("midmask.recipe", "")]()
    corpus = wanted.params.get("corpus.name", recipe.corpus.name)
    named = ("--recipe", recipe.name, "--corpus", corpus)
    yield _based(named, recipe, wanted.params, "demo")
    for scale in SCALES if protocol in PROTOCOLS else ():
        scaled = at_scale(recipe, protocol, scale)
        flags = (*named, "--protocol", protocol, "--scale", scale)
        yield _based(flags, scaled, wanted.params, scale)


def _based(flags: tuple[str, ...], recipe: Recipe, params: Mapping[str, str], scale: Scale) -> _Base:
    """The recipe on the run's corpus and backbone, which has defaults of its own."""
    name = params.get("backbone.name", recipe.backbone.name)
    if name != recipe.backbone.name:
        flags = (*flags, "--set", f"backbone.name={name}")
    places = {"corpus.name": params.get("corpus.name", recipe.corpus.name), "backbone.name": name}
    return _Base(flags, with_changes(recipe, places, scale), scale)


def _from(base: _Base, params: Mapping[str, str]) -> Rerun:
    """Flags that change this base into the run's recipe, and the fields that they do not reach."""
    changes = _changes(_texts(base.recipe), params)
    try:
        reached = _texts(with_changes(base.recipe, changes, base.scale))
    except UserError:
        return Rerun(base.flags, tuple(sorted(params)))
    settings = [part for path, value in changes.items() for part in ("--set", f"{path}={value}")]
    differs = sorted(path for path, text in params.items() if reached.get(path) != text)
    return Rerun((*base.flags, *settings), tuple(differs), tuple(sorted(reached.keys() - params.keys())))


def _changes(default: Mapping[str, str], params: Mapping[str, str]) -> dict[str, str]:
    """Path -> value as it is typed. What is of another kind, or on one side alone, is set as a whole."""
    whole = {path.rpartition(".")[0] for path, text in params.items() if _is_kind(path) and default.get(path) != text}
    whole |= {parent for path in params.keys() - default.keys() if (parent := _above(path, default))}
    whole = {parent for parent in whole if not any(parent.startswith(f"{other}.") for other in whole)}
    missing = {parent for path in default.keys() - params.keys() if (parent := _above(path, params))}
    changes = {
        path: text
        for path, text in params.items()
        if default.get(path, text) != text and not any(path.startswith(f"{parent}.") for parent in whole)
    }
    return (
        changes
        | dict.fromkeys(sorted(missing), "none")
        | {parent: json.dumps(_nested(parent, params)) for parent in sorted(whole)}
    )


def _is_kind(path: str) -> bool:
    """Whether this field decides which other fields there are."""
    return path.endswith((".loss.name", "objective.name"))


def _above(path: str, others: Mapping[str, str]) -> str:
    """The part of a path that is a field of the others, where they have no config but none; empty if there is not."""
    names = path.split(".")
    parts = (".".join(names[:count]) for count in range(1, len(names)))
    return next((part for part in parts if part in others), "")


def _nested(path: str, params: Mapping[str, str]) -> dict[str, Any]:
    """The config at a path as an object."""
    config: dict[str, Any] = {}
    for name, text in params.items():
        if name.startswith(f"{path}."):
            *parents, leaf = name.removeprefix(f"{path}.").split(".")
            target = config
            for parent in parents:
                target = target.setdefault(parent, {})
            target[leaf] = _value(text)
    return config


def _texts(recipe: Recipe) -> dict[str, str]:
    """The recipe's fields as a run's params have them: strings as they are, all else as JSON."""
    return {path: value if isinstance(value, str) else json.dumps(value) for path, value in flatten(recipe).items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def main() -> None:
    print(json.dumps(asdict(rerun(Wanted(**json.load(sys.stdin))))))


if __name__ == "__main__":
    main()
