"""Counts that an earlier process has made, kept as JSON in the cache folder: building and running a model's classes
takes seconds, and dry runs repeat the same few.

A count is known by its arguments, the versions of the libraries and the source code that it follows from, so a changed
class is counted anew. Models that a folder or hub id names are not kept: their files may change.
"""

import inspect
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import cache, lru_cache, partial, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from midmask.encoders.backbone import SIZES, BackboneConfig
from midmask.identity import Config, fingerprint, library_versions
from midmask.objectives import FINETUNING, PRETRAINING, ObjectiveConfig
from midmask.recall import recall

P = ParamSpec("P")
T = TypeVar("T")


def remembered(make: type[T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function of configs and plain values whose result is `make`: a dataclass of numbers, or a number."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def recall_or_count(*args: P.args, **kwargs: P.kwargs) -> T:
            values = [*args, *kwargs.values()]
            if any(isinstance(value, BackboneConfig) and value.name not in SIZES for value in values):
                return function(*args, **kwargs)
            told = {"function": function.__qualname__, "code": _code(), "libraries": library_versions()}
            name = f"counts/{fingerprint({**told, 'arguments': list(map(_plain, values))})}.json"
            value: T = recall(name, parse, partial(function, *args, **kwargs), plain=_outward)
            return value

        def parse(found: Any) -> T:
            return make(**found) if is_dataclass(make) else make(found)  # type: ignore[call-arg]

        in_process: Callable[P, T] = lru_cache(maxsize=256)(recall_or_count)  # type: ignore[assignment]
        return in_process

    return decorate


def _outward(result: Any) -> Any:
    """A result as plain data."""
    return vars(result) if is_dataclass(result) else result


def _plain(value: Any) -> Any:
    if isinstance(value, ObjectiveConfig):
        own = {**PRETRAINING, **FINETUNING}.get(value.name, type(value))
        return {"class": own.__qualname__, "source": _source(own), **value.model_dump(mode="json")}
    if isinstance(value, Config):
        return value.model_dump(mode="json")
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _source(own: type) -> str:
    """Digest of the file that a class comes from; objectives may be defined outside of midmask."""
    return sha256(Path(inspect.getfile(own)).read_bytes()).hexdigest()


@cache
def _code() -> str:
    """Digest of midmask's own source: any of it may change a count."""
    found = sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
