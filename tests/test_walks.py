"""The ways through the house that tests/walks.toml lists exist, and are as short as they should be."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WALKS = tomllib.loads((ROOT / "tests" / "walks.toml").read_text("utf-8"))["walk"]


def named_in(file: str) -> set[str]:
    """Names, attributes, keywords, fields and words of short strings in a file."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Constant(value=str(text)):
                found.add(text)
    return found


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk["name"])
def test_every_file_of_a_walk_names_what_leads_on(walk: dict) -> None:
    stops = [stop.split(": ") for stop in walk["way"]]
    seen: set[str] = set()
    for (file, name), (after, _) in zip(stops, [*stops[1:], stops[-1]], strict=True):
        seen.add(file)
        assert name in named_in(file), f"{file} does not name {name}"
        assert after in seen or name in named_in(after), f"{file} leads by {name} to {after}, which does not have it"


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk["name"])
def test_a_walk_touches_few_files(walk: dict) -> None:
    files = {stop.split(": ")[0] for stop in walk["way"]}
    assert len(files) <= walk["most"], f"{len(files)} files"
