"""The house stays in shape: what stands where, who imports whom, which versions, what a file may hold."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.mutations.__main__ import misfits, read
from tests.support.tracked import is_foreign, tracked_files

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = {
    *("platform", "jobs", "search_spaces", "dashboards", "tests", "docs", "deploy"),
    *("pyproject.toml", "README.md", "Makefile", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt"),
}
LONGEST_FILE, LONGEST_JOB, LONGEST_FUNCTION = 300, 60, 60  # lines
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def jobs() -> list[Path]:
    return sorted(path for path in (ROOT / "jobs").glob("[a-z]*.py") if not is_foreign(path))


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


def test_platform_is_no_package() -> None:
    """`platform/` is a source root. As a package it would hide the standard library's module from torch."""
    assert not (ROOT / "platform" / "__init__.py").exists(), "it shadows the standard library's platform; remove it"


def test_a_platform_package_would_break_the_standard_library(tmp_path: Path) -> None:
    """Why the test above is there: torch asks `platform.system()` while it is imported."""
    ask = [sys.executable, "-c", "import platform; print(platform.system())"]
    (tmp_path / "platform").mkdir()
    assert subprocess.run(ask, cwd=tmp_path, check=False, capture_output=True).returncode == 0
    (tmp_path / "platform" / "__init__.py").touch()
    broken = subprocess.run(ask, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert broken.returncode == 1 and "has no attribute 'system'" in broken.stderr


def test_the_top_level_holds_only_what_the_design_names() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL


def test_no_file_and_no_function_is_too_long() -> None:
    long = []
    for path in python_files():
        text = path.read_text(encoding="utf8")
        limit = LONGEST_JOB if path in jobs() else LONGEST_FILE
        if (lines := len(text.splitlines())) > limit:
            long.append(f"{path.relative_to(ROOT)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(ROOT)}: {node.name} has {lines} lines")
    assert not long


def test_nothing_is_left_to_do() -> None:
    marks = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r"\b")
    assert not [path for path in python_files() if marks.search(path.read_text(encoding="utf8"))]


def test_no_package_index_is_named() -> None:
    hosts = re.compile(r"pypi\.org|pythonhosted\.|download\.pytorch\.|anaconda\.|npmjs\.|jsdelivr\.|unpkg\.")
    named = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf8")
        except UnicodeDecodeError:
            continue
        named += [f"{path.relative_to(ROOT)}: {match.group()}" for match in hosts.finditer(text)]
    assert not named


def test_every_named_dependency_is_pinned_within_its_range() -> None:
    pinned = pins()
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"constraints.txt lacks {name}"
        assert requirement.specifier.contains(pinned[name]), f"{name}: {pinned[name]} is not {requirement.specifier}"


def test_what_is_installed_is_what_is_pinned() -> None:
    wrong = []
    for name, pinned in pins().items():
        try:
            installed = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            continue
        if installed != pinned:
            wrong.append(f"{name}: {installed} is installed, constraints.txt says {pinned}")
    assert not wrong, "run `make venv`"


def test_every_import_is_a_named_dependency() -> None:
    """Nothing is used that merely happens to be brought along by something else. What is not installed, as an optional
    package may not be, was brought along by nothing.
    """
    named = {canonicalize_name(requirement.name) for requirement in requirements()} | {"midmask"}
    homes = metadata.packages_distributions()
    ours = {
        "midmask",
        "midmask_papers",
        "jobs",
        "_entry",
        "views",
        "tests",
        *(path.stem for path in (ROOT / "dashboards").glob("*.py")),
    }
    strangers = set()
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [str(node.module)]
            for top in {module.split(".")[0] for module in modules} - sys.stdlib_module_names - ours:
                if top in homes and not named & {canonicalize_name(home) for home in homes[top]}:
                    strangers.add(f"{path.relative_to(ROOT)}: {top}")
    assert not strangers


def private_names_of_ray(text: str) -> set[str]:
    """Of a file in the home of Ray: imported names that are private or in a private module, attributes and arguments
    that begin with an underscore, and names of private modules in strings."""
    named = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "ray":
                is_private = re.search(r"\._|generated", module)
                named |= {alias.name for alias in names if is_private or alias.name.startswith("_")}
            case ast.Attribute(attr=name) if re.match("_[a-z]", name) and not re.match(r"self\.", ast.unparse(node)):
                named.add(name)
            case ast.keyword(arg=str(name)) if name.startswith("_"):
                named.add(name)
            case ast.Constant(value=str(string)) if re.fullmatch(r"ray(\.\w+)*\._[\w.]+", string):
                named.add(string)
    return named


def test_private_names_of_ray_are_those_that_a_decision_gives_reasons_for() -> None:
    decisions = (ROOT / "docs" / "decisions.md").read_text(encoding="utf8")
    reasons = re.findall(
        r"^    - ((?:`[\w.]+`(?:, )?)+): ", decisions.partition("Of Ray's private names")[2], re.MULTILINE
    )
    files = (ROOT / "platform" / "midmask" / "backend").glob("*.py")
    used = set().union(*(private_names_of_ray(path.read_text(encoding="utf8")) for path in files))
    ours = {"_fields", "_post", "_exit"}  # of a named tuple, of this package, of os
    assert used - ours == set(re.findall(r"`([\w.]+)`", " ".join(reasons)))


def test_private_names_of_ray_are_seen_however_they_are_reached() -> None:
    assert private_names_of_ray("import ray\nray._private.worker._global_node") == {"_private", "_global_node"}
    assert private_names_of_ray("from ray._private.utils import a\nfrom ray.train import _b, c") == {"a", "_b"}
    assert private_names_of_ray("f(_d=1, e=2)\ng('ray.data._internal')\nself._own") == {"_d", "ray.data._internal"}


def imports_of_tests() -> list[tuple[Path, str, str]]:
    """(file, module, name) of everything that a file of tests/ imports by name, wherever in the file."""
    found = []
    for path in python_files():
        if path.relative_to(ROOT).parts[0] == "tests":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
                if isinstance(node, ast.ImportFrom):
                    found += [(path.relative_to(ROOT), str(node.module), alias.name) for alias in node.names]
                elif isinstance(node, ast.Import):
                    found += [(path.relative_to(ROOT), alias.name, "") for alias in node.names]
    return found


def test_no_test_imports_a_test() -> None:
    """What several tests need lies in tests/support: a test that moves or goes breaks no other."""
    module = re.compile(r"tests\.(.*\.)?(test_\w+|conftest)$")
    wrong = [
        f"{path} imports {home}.{name}"
        for path, home, name in imports_of_tests()
        if module.match(home) or module.match(f"{home}.{name}")
    ]
    assert not wrong, "move what they share to tests/support"


def test_no_test_uses_a_private_name_of_the_package() -> None:
    imports = [each for each in imports_of_tests() if each[1].startswith("midmask")]
    wrong = {f"{path}: {home}.{name}" for path, home, name in imports if re.search(r"\._[a-z]", f"{home}.{name}")}
    for path in {path for path, _, _ in imports}:
        ours = {name for own, _, name in imports if own == path}
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf8"))):
            if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr) and isinstance(node.value, ast.Name):
                if node.value.id in ours:
                    wrong.add(f"{path}: {node.value.id}.{node.attr}")
    assert not wrong, "test it by what the module offers, or make it public"


def test_every_mutation_applies() -> None:
    """The old text of each entry of tests/mutations stands where the entry says, and its tests are there."""
    assert not misfits(read([]))


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of pyproject.toml, checked over the package under `source`."""
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--no-cache",
        "--config",
        str(ROOT / "pyproject.toml"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, env=environment, cwd=source, capture_output=True, text=True, check=False)


def test_import_contracts_hold() -> None:
    result = lint_imports(ROOT / "platform")
    assert result.returncode == 0, result.stdout


def test_import_contracts_see_what_breaks_them(tmp_path: Path) -> None:
    """Each contract, broken on purpose in a copy, is reported as broken."""
    for package in ("midmask", "midmask_papers"):
        shutil.copytree(ROOT / "platform" / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for place, line in [
        ("distributed.py", "import midmask.training"),
        ("experiment/steps.py", "import ray"),
        ("backend/tune.py", "import optuna"),
        ("benchmark/run.py", "import midmask_papers.report"),
        ("recipes/__init__.py", "import mlflow"),
        ("evaluation/__init__.py", "import faiss"),
        ("registry.py", "import streamlit"),
        ("vocabulary.py", "import ir_datasets"),
        ("heads.py", "import psycopg"),
        ("switches.py", "import seismic"),
        ("artifact.py", "import torch"),
        ("tracking/__init__.py", "import midmask.artifact"),
    ]:
        path = tmp_path / "midmask" / place
        path.write_text(path.read_text(encoding="utf8") + f"\n{line}\n", encoding="utf8")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    assert re.search(r"Contracts: 0 kept, \d+ broken", result.stdout), result.stdout


@pytest.mark.parametrize("job", jobs(), ids=lambda path: path.stem)
def test_a_job_can_be_run_by_its_path_and_has_help(job: Path) -> None:
    assert os.access(job, os.X_OK), f"chmod +x {job}"
    assert job.read_text().startswith("#!/usr/bin/env python3\n")
    assert job.stem not in metadata.packages_distributions(), "run by path, it would hide an installed module"
    result = subprocess.run([sys.executable, str(job), "--help"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    docstring = ast.get_docstring(ast.parse(job.read_text()))
    assert docstring and docstring.splitlines()[0] in result.stdout
    for flag in ("--corpus", "--recipe", "--set", "--storage", "--tracking-uri", "--workers", "--seed", "--dry-run"):
        assert flag in result.stdout
