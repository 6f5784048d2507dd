"""The house stays in shape: versions, what is installed, and who names whose private parts (`make lint` has more)."""

import functools
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.jobs.running import run_job
from tests.support.tracked import is_foreign, tracked_files
from tests.tools.reachability import unreached

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
JOBS = sorted(path for path in (ROOT / "jobs").glob("[a-z]*.py") if not is_foreign(path))
IMPORT = re.compile(r"^ *(?:from|import) ([a-zA-Z]\w*)", re.MULTILINE)


@functools.cache
def texts() -> dict[Path, str]:
    """All Python of the project, by its path in it."""
    return {path.relative_to(ROOT): path.read_text("utf-8") for path in tracked_files() if path.suffix == ".py"}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(line) for line in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]]


def test_what_is_no_code_is_installed_with_the_packages() -> None:
    """Each file has a pattern and each pattern files: a wheel without its records fails when it is used."""
    source = ROOT / "platform"
    wanted = {path for path in tracked_files() if path.is_relative_to(source) and path.suffix != ".py"}
    patterns = SETTINGS["tool"]["setuptools"]["package-data"]
    found = {(package, one): set((source / package).glob(one)) for package, own in patterns.items() for one in own}
    assert not [one for one, files in found.items() if not files]
    assert wanted == {path for files in found.values() for path in files if not is_foreign(path)}
    assert not (source / "__init__.py").exists(), "a package of this name would hide the standard library's from torch"


def test_every_named_dependency_is_pinned_within_its_range() -> None:
    pinned = pins()
    for requirement in requirements():
        version = pinned.get(canonicalize_name(requirement.name))
        assert version and requirement.specifier.contains(version), f"{requirement}: constraints.txt has {version}"


def test_what_is_installed_is_what_is_pinned() -> None:
    installed = {canonicalize_name(one.name): one.version.split("+")[0] for one in metadata.distributions()}
    wrong = {name: (installed[name], pin) for name, pin in pins().items() if installed.get(name, pin) != pin}
    assert not wrong, "run `make venv`"


def imports(text: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that a file imports from a module, wherever in it."""
    for module, names in re.findall(r"^ *from ([\w.]+) import (\([^)]*\)|.*)", text, re.MULTILINE):
        yield from ((module, name) for name in re.findall(r"(\w+)(?: as \w+)?", names))


def of_tests() -> dict[Path, str]:
    return {path: text for path, text in texts().items() if path.parts[0] == "tests"}


def test_every_import_is_a_named_dependency() -> None:
    """Nothing is used that merely happens to be brought along by something else. What is not installed, as an optional
    package may not be, was brought along by nothing.
    """
    named = {canonicalize_name(requirement.name) for requirement in requirements()} | {"midmask"}
    homes = metadata.packages_distributions()
    ours = {"midmask", "midmask_papers", "jobs", "_entry", "tests", *sys.stdlib_module_names}
    used = {(path, top) for path, text in texts().items() for top in IMPORT.findall(text)}
    others = {(path, top) for path, top in used if top not in ours and top in homes}
    assert not {one for one in others if not named & {canonicalize_name(home) for home in homes[one[1]]}}


def test_no_test_imports_a_test() -> None:
    """What several tests need lies in tests/support: a test that moves or goes breaks no other."""
    test = re.compile(r"tests\.(.*\.)?(test_\w+|conftest)(\.\w+)?$")
    found = [(path, f"{module}.{name}") for path, text in of_tests().items() for module, name in imports(text)]
    assert not [(path, name) for path, name in found if test.match(name)]


def test_no_test_uses_a_private_name_of_the_package() -> None:
    """What it tests is what a module offers."""
    wrong = set()
    for path, text in of_tests().items():
        own = [(module, name) for module, name in imports(text) if module.partition(".")[0] == "midmask"]
        wrong |= {(path, f"{module}.{name}") for module, name in own if re.search(r"\._[a-z]", f"{module}.{name}")}
        names = "|".join({name for _, name in own})
        wrong |= {(path, used) for used in re.findall(rf"(?<![\w.])(?:{names})\._[a-z]\w*", text) if names}
    assert not wrong


LIBRARY = """
IDLE = 4
def used():
    return LIMIT
def idle():
    return below()
def below():
    return 1
LIMIT = 3
class Kept:
    def __init__(self): ...
    def method(self): ...
    def other(self): ...
"""


def test_what_nothing_names_is_found_and_so_is_what_only_that_names(tmp_path: Path) -> None:
    for folder in ("jobs", "platform"):
        (tmp_path / folder).mkdir()
    (tmp_path / "jobs/run.py").write_text("from midmask.a import Kept, used\nused(Kept().method)\n")
    (tmp_path / "platform/a.py").write_text(LIBRARY)
    assert [line.split(": ")[1] for line in unreached(tmp_path)] == ["IDLE", "idle", "below", "Kept.other"]


def test_a_job_can_be_run_by_its_path() -> None:
    installed = metadata.packages_distributions()
    for job in JOBS:
        assert os.access(job, os.X_OK) and job.read_text().startswith("#!/usr/bin/env python3\n")
        assert job.stem not in installed, "run by path, it would hide an installed module"
    pages = {path.stem for path in (ROOT / "platform/midmask/pages").glob("*.py")}
    assert not pages & {*installed, *sys.stdlib_module_names}, "Streamlit looks for modules beside the page first"


@pytest.mark.parametrize("job", ["pretrain", "sweep_mask_ratio", "evaluate_retriever", "benchmark_middle_training"])
def test_a_job_has_help(job: str, tmp_path: Path) -> None:
    done = run_job(job, "--help", home=tmp_path)
    flags = ("--corpus", "--recipe", "--set", "--storage", "--tracking-uri", "--workers", "--seed", "--dry-run")
    assert done.code == 0 and not [flag for flag in flags if flag not in done.out]
