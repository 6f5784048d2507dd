"""All fields of a recipe, as the page of the documentation and as the list that a misspelt `--set` is held against, and
the table of corpus formats in other pages: `python -m tests.tools.fields FILE…` writes all (`make guide`).
"""

import json
import sys
import types
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from midmask.core.config import Config, flatten, is_runtime
from midmask.corpora.config import FORMATS
from midmask.corpora.reader import reader_of
from midmask.experiment.schema import Recipe
from midmask.objectives import ObjectiveConfig
from midmask.recipes import RECIPES
from midmask.recipes.fields import FILE, any_stage
from midmask.recipes.protocols import PROTOCOLS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fields.md"
HEAD = """# Fields of a recipe

<!-- Generated from the schema by `make guide`. Do not edit: change the field's declaration instead. -->

A recipe is the full configuration of one system, and each value in it is a field with a dotted path. Set a field with
`--set PATH=VALUE` in a job, with `settings={"PATH": VALUE}` in `midmask.train`, or list its values under its path in a
[search space](sweeps.md). `stages.*.train.steps` is of every stage of the fine-tuning,
`stages.0.train.steps` of the first.

A row holds for each of its paths and stands in the section of the first. †: does not change the result. The column
*default* is the schema's. Recipes and protocols set many fields to the values of their papers: `--dry-run` in the
shell, or `midmask.settings("retromae")` in Python, shows the values of one recipe. A field that several methods declare
differently has a row for each declaration.
"""
WORDS = {int: "integer", float: "number", bool: "boolean", str: "text", types.NoneType: "none"}
BOUNDS = {"ge": "≥ {:,}", "gt": "> {:,}", "le": "≤ {:,}", "lt": "< {:,}", "min_length": "length ≥ {:,}"}
"""Attribute of a bound in the schema -> how the bound is written."""


@dataclass(frozen=True)
class FieldRow:
    """One declaration of a field, as texts. Sections that have a part in common have the same declaration."""

    leaf: str
    type: str
    default: str
    description: str


def fields() -> list[str]:
    """Every field of every recipe under every protocol, sorted."""
    return sorted({any_stage(path) for config in all_configs() for path in flatten(config)})


def all_configs() -> list[Recipe]:
    """Every recipe, and the first of them under every protocol: together they have all fields. Takes seconds."""
    recipes = [RECIPES[name]() for name in RECIPES]
    return [*recipes, *(PROTOCOLS[name]().on(recipes[0], "demo") for name in PROTOCOLS)]


def page() -> str:
    """The page in Markdown: a table for each section of a recipe, fields sorted by path."""
    paths: dict[FieldRow, set[str]] = {}
    methods: dict[FieldRow, dict[str, None]] = {}
    for config in all_configs():
        for path, row, method in walk(config):
            paths.setdefault(row, set()).add(path)
            methods.setdefault(row, {}).update({method: None} if method else {})
    sections: dict[str, list[list[str]]] = {}
    for row, own in sorted(paths.items(), key=lambda item: min(item[1])):
        cells = [", ".join(f"`{path}`" for path in sorted(own)), *astuple(row)[1:], ", ".join(methods[row])]
        sections.setdefault(section_of(min(own)), []).append(cells)
    return "\n".join([HEAD, *(_render(name, sections[name]) for name in sorted(sections))])


def walk(config: Config, prefix: str = "") -> Iterator[tuple[str, FieldRow, str]]:
    """Path and declaration of every field of a config at any depth, and the method that declares it, empty if none."""
    method = config.name if isinstance(config, ObjectiveConfig) else ""
    for name, info in type(config).model_fields.items():
        value, path = getattr(config, name), f"{prefix}{name}"
        parts = value if isinstance(value, tuple) else ()
        if isinstance(value, Config):
            yield from ((inner, row, by or method) for inner, row, by in walk(value, f"{path}."))
        elif any(isinstance(part, Config) for part in parts):
            for part in parts:
                yield from walk(part, f"{path}.*.")
        else:
            text = escape_cell(info.description or "") + " †" * is_runtime(config, name)
            kind, default = describe_type(info), "required"
            if method and name == "name":
                kind, default = "text", "the method"
            elif not info.is_required():
                default = show(info.get_default(call_default_factory=True, validated_data={}))
            yield path, FieldRow(name, kind, default, text), method


def section_of(path: str) -> str:
    """The section of a recipe that a field is listed in: `stages.*.mine` of `stages.*.mine.filters.margin`."""
    if path.startswith("stages.*."):
        return ".".join(path.split(".")[: 3 if path.count(".") > 2 else 2])
    return path.partition(".")[0] if "." in path or path == "objective" else "recipe"


def describe_type(info: FieldInfo) -> str:
    """A field's type and bounds in words: `whole number, ≥ 1, or none`."""
    kinds = [*dict.fromkeys(_words(info.annotation))]
    pairs = [(bound, name) for bound in info.metadata for name in BOUNDS if hasattr(bound, name)]
    bounds = [BOUNDS[name].format(getattr(bound, name)) for bound, name in pairs]
    absent = ["or none"] if "none" in kinds else []
    return ", ".join([*(kind for kind in kinds if kind != "none"), *bounds, *absent])


def _words(annotation: Any) -> list[str]:
    """The alternatives of a type, in words."""
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return [word for argument in arguments for word in _words(argument)]
    if get_origin(annotation) is Literal:
        return [show(value) for value in arguments]
    if get_origin(annotation) is tuple:
        return [f"list of {word}s" for word in _words(arguments[0])]
    return [WORDS.get(annotation, "a section of fields")]


def show(value: Any) -> str:
    """A value as it is typed."""
    if value is None or value == "":
        return "none" if value is None else "empty"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _render(section: str, rows: list[list[str]]) -> str:
    """A section's table, below its description at the top of the recipe, if any; without methods where none has any."""
    heads = ["field", "type", "default", "meaning", "methods"][: 5 if any(row[-1] for row in rows) else 4]
    lines = ["| " + " | ".join(line[: len(heads)]) + " |" for line in [heads, *rows]]
    lines.insert(1, "| :--- " * len(heads) + "|")
    field = Recipe.model_fields.get(section)
    text = (field and field.description) or ""
    meaning = [f"{text[0].upper()}{text[1:]}.\n"] if text else []
    return "\n".join([f"## {section}\n", *meaning, *lines, ""])


BEGIN, END = "<!-- formats: begin -->", "<!-- formats: end -->"


def with_formats(text: str) -> str:
    """A Markdown text with the table of formats and layouts between its two marks; a text without marks as it is."""
    rows = [f"| `{name}` | {escape_cell(reader_of(name).layout)} |" for name in FORMATS]
    table = "\n".join(["| format | layout |", "| :----- | :----- |", *rows])
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}" if begin and end else text


def escape_cell(text: str) -> str:
    """Text whose characters Markdown shows as they are, in a cell of a table."""
    return "".join(f"\\{character}" if character in "\\`*<|[" else character for character in text)


if __name__ == "__main__":
    FILE.write_text("\n".join(fields()) + "\n", "utf-8")
    PAGE.write_text(page(), "utf-8")
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_formats(file.read_text("utf-8")), "utf-8")
