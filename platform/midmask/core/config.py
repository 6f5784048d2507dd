"""Configs, and the fingerprint that two configs of the same experiment share.

A field is *identity* or *runtime*. Identity changes the result (objective, corpus, masks, global batch, seed,
precision) and enters the fingerprint. Runtime does not (workers, micro-batch, log interval); it is declared with
`runtime(...)`, and owes a test that changing it leaves the losses equal. A field that is new is declared with
`added(...)`, so that artifacts of before are found.
"""

import hashlib
import json
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from midmask.errors import SHOWN, UserError, quoted, unknown

C = TypeVar("C", bound="Config")

NUMERIC_LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
"""Libraries whose version changes numbers: they are part of every trained artifact's identity."""

FAISS_BUILDS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12", "faiss-gpu-cuvs")
"""Packages of which a machine has one."""

ABSENT = "absent"
"""Stands for the version of a library that is not installed."""

LARGEST = 2**53
"""Whole numbers from here on are no exact floats, and most fields would overflow long before."""


class Config(BaseModel):
    """Base of every config: frozen, keyword-only. Refused are unknown fields, infinities and NaN, whole numbers of
    `LARGEST` or more, and texts that UTF-8 cannot express, since such values could not be stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    WITHDRAWN: ClassVar[tuple[tuple[str, Any], ...]] = ()
    """Fields that went, and the value that they had: part of the fingerprint, so that artifacts of before are found."""

    @field_validator("*", mode="after")
    @classmethod
    def _can_be_stored(cls, value: Any) -> Any:
        _check_storable(value)
        return value


def _check_storable(value: Any) -> None:
    """
    Raises:
        ValueError: for a number that is too large or a text with lone surrogates or NUL, at any depth of plain data.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("a text must be valid UTF-8, without lone surrogates") from None
        if "\0" in value:
            raise ValueError("a text must not contain the character NUL")
    elif isinstance(value, int) and abs(value) >= LARGEST:
        raise ValueError("a whole number must be below 2^53")
    elif isinstance(value, list | tuple | dict):
        for inner in [*value, *(value.values() if isinstance(value, dict) else ())]:
            _check_storable(inner)


def runtime(default: Any, description: str, **limits: Any) -> Any:
    """A field that does not change the result, hence stays out of the fingerprint."""
    return Field(default, description=description, json_schema_extra={"runtime": True}, **limits)


def added(default: Any, description: str, **limits: Any) -> Any:
    """A field that came after artifacts were made without it: at its default it stays out of the fingerprint, so that
    these are still found. The default must be what was done before there was the field.
    """
    return Field(default, description=description, json_schema_extra={"added": True}, **limits)


def is_runtime(config: Config, name: str) -> bool:
    return _is_marked(config, name, "runtime")


def _is_marked(config: Config, name: str, mark: str) -> bool:
    extra = type(config).model_fields[name].json_schema_extra
    return isinstance(extra, dict) and bool(extra.get(mark))


def _is_as_before(config: Config, name: str) -> bool:
    """Whether a field that was added later has its default."""
    return _is_marked(config, name, "added") and getattr(config, name) == type(config).model_fields[name].default


def identity_of(config: Config) -> dict[str, Any]:
    """The config as plain data without its runtime fields, and without added ones at their default, at every depth."""
    kept = {
        name: _plain(getattr(config, name))
        for name in type(config).model_fields
        if not is_runtime(config, name) and not _is_as_before(config, name)
    }
    return {**dict(config.WITHDRAWN), **kept}


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return identity_of(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def canonical(value: Any) -> str:
    """One text per value: sorted keys, no white space, floats as `repr`.

    Raises:
        TypeError: for anything but plain data, rather than guessing with `repr`.
        ValueError: for an infinity or NaN.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """16 hexadecimal digits of the SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


_FINGERPRINT = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")


def fingerprints_in(text: str) -> set[str]:
    """All that look like a fingerprint in a text, such as that of a place, a record or a tag."""
    return set(_FINGERPRINT.findall(text))


MODEL_FILES = (".json", ".safetensors", ".model", ".jinja", ".txt")
"""Suffixes of files of a model folder that decide what the model does."""


def file_fingerprint(path: str | Path, field: str = "") -> str:
    """16 hexadecimal digits of the SHA-256 of a file's bytes, read in a stream.

    Args:
        field: the field that names the file and its value, for the error's text.

    Raises:
        UserError: if there is no such file.
    """
    if not Path(path).is_file():
        raise UserError(f"{field or path}: there is no such file")
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def model_content(folder: Path, field: str) -> dict[str, str]:
    """Fingerprints of a model folder's files, as a part of an artifact's identity.

    Args:
        field: what the folder was given for, for the error's text.

    Raises:
        UserError: if there is no config.json.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{field} = model:{folder}: no config.json in it; name a model folder")
    return {file.name: file_fingerprint(file) for file in sorted(folder.iterdir()) if file.suffix in MODEL_FILES}


def library_versions(names: tuple[str, ...] = NUMERIC_LIBRARIES) -> dict[str, str]:
    """Installed versions by name; a build suffix such as `+cpu` is cut, since CPU and GPU builds share an identity."""
    return {name: _library_version(name) for name in names}


@cache
def _library_version(name: str) -> str:
    """Asked once: a plan has hundreds of steps, and each answer is read from a file."""
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return ABSENT


def as_user_error(error: ValidationError, where: str) -> UserError:
    """The first fault of a failed validation as one line: field, value, and the condition that it breaks."""
    fault = error.errors()[0]
    path = ".".join(str(part) for part in fault["loc"])
    field = ".".join(part for part in (where, path) if part)
    message = fault["msg"].removeprefix("Value error, ")
    more = error.error_count() - 1
    tail = f" ({more} more)" if more else ""
    if fault["type"] == "extra_forbidden":
        return UserError(f"{field}: no such field{tail}")
    if fault["type"] == "missing":
        return UserError(f"{field}: a value is required{tail}")
    value = "" if isinstance(fault["input"], dict | Config) else f" = {quoted(fault['input'])}"
    if fault["type"] in ("tuple_type", "list_type") and isinstance(fault["input"], str):
        items = [item.strip(" []()'\"") for item in fault["input"].split(",")]
        return UserError(f"{field}{value}: a list is wanted; write {quoted(json.dumps(items))}{tail}")
    return UserError(f"{field}{value}: {message[0].lower()}{message[1:]}{tail}")


def flatten(config: Config) -> dict[str, Any]:
    """Dotted path -> value, leaves only; a list's items are addressed by position (`stages.0.train.steps`)."""
    flat: dict[str, Any] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Config):
            items = [(name, getattr(value, name)) for name in type(value).model_fields]
        elif isinstance(value, list | tuple) and any(isinstance(item, Config) for item in value):
            items = [(str(index), item) for index, item in enumerate(value)]
        elif isinstance(value, dict) and any(isinstance(item, Config) for item in value.values()):
            items = list(value.items())
        else:
            flat[path] = list(value) if isinstance(value, tuple) else value
            return
        for name, item in items:
            walk(item, f"{path}.{name}" if path else name)

    walk(config, "")
    return flat


HINT = "--dry-run (in Python: midmask.settings(RECIPE)) lists all fields."


def override(config: C, changes: dict[str, Any]) -> C:
    """A copy of `config` with dotted paths replaced and everything validated again.

    Args:
        changes: dotted path -> value, or its text as typed (`objective.encoder_mask_ratio=0.15`). The path of a whole
            config takes an object of its fields, or none (`stages.2.teacher={"folder": "/models/minilm"}`).

    Raises:
        UserError: for an unknown path, naming the nearest one, or an impossible value.
    """
    data = config.model_dump()
    known = flatten(config)
    for path, value in changes.items():
        parsed = _parse_value(path, value) if isinstance(value, str) else value
        whole = any(name.startswith(f"{path}.") for name in known) and (parsed is None or isinstance(parsed, dict))
        if path not in known and not whole:
            raise unknown("field", path, known, hint=HINT if len(known) > SHOWN else "")
        target: Any = data
        *parents, leaf = path.split(".")
        try:
            for name in parents:
                target = target[int(name) if isinstance(target, list | tuple) else name]
            target[leaf] = parsed
        except (TypeError, LookupError, ValueError):  # --set stages.0.teacher=none --set stages.0.teacher.folder=…
            raise UserError(f"{path} = {quoted(value)}: another change replaces the whole of {parents[-1]}") from None
    try:
        return type(config).model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, "") from None


def _parse_value(path: str, text: str) -> Any:
    """A value as typed on the command line: JSON where it is JSON (numbers, lists, null), else the text itself.

    Raises:
        UserError: for a number of more digits, or lists inside of each other deeper, than Python reads.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"none": None, "true": True, "false": False}.get(text.lower(), text)
    except ValueError:
        raise UserError(f"{path} = {quoted(text)}: a number of {len(text):,} characters; write a shorter one") from None
    except RecursionError:
        raise UserError(f"{path} = {quoted(text)}: lists nested too deeply; write a plain value") from None
