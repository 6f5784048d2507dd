"""A fresh SQLite store for each test, copied from one made once: MLflow takes seconds to make its tables."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables and nothing else, made once: making them takes seconds."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"
