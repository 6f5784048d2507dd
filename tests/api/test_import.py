"""`import midmask`: what it brings, what it does not, and that no module hides a public name."""

import pkgutil
import subprocess
import sys

import pytest

import midmask

HEAVY = ("torch", "ray", "mlflow", "transformers", "pyarrow", "numpy", "pydantic", "sentence_transformers", "faiss")


def in_a_fresh_process(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_importing_midmask_imports_nothing_heavy() -> None:
    program = f"import sys, midmask; dir(midmask); print([name for name in {HEAVY} if name in sys.modules])"
    assert in_a_fresh_process(program).strip() == "[]"


def test_training_in_this_process_never_imports_ray_or_mlflow() -> None:
    program = (
        "import sys, midmask; [getattr(midmask, name) for name in midmask.__all__]; "
        "print([name for name in ('ray', 'mlflow') if name in sys.modules])"
    )
    assert in_a_fresh_process(program).strip() == "[]"


def test_no_module_of_the_package_bears_a_public_name() -> None:
    """An import of `midmask.NAME` would put the module in the place of the function."""
    modules = {module.name for module in pkgutil.iter_modules(midmask.__path__)}
    assert not modules & set(midmask.__all__)


def test_every_public_name_is_there_and_listed() -> None:
    assert set(midmask.__all__) <= set(dir(midmask))
    for name in midmask.__all__:
        assert getattr(midmask, name).__doc__, f"{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        midmask.trian  # noqa: B018
