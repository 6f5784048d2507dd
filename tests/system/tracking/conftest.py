"""A fresh SQLite store for each test, as the first tier's."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"
