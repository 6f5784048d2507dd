"""The lines of docs/model_elsewhere.md that need no network, run as they stand, in the environment that they make."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import midmask
from tests.support.api import toy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FOLDER = "store/finetune/…/model"
TEXTS = ["numpy has arrays", "a function returns a value", "files are opened and closed"]


def blocks(language: str) -> list[str]:
    """The page's blocks of code in a language."""
    text = (Path(__file__).parents[2] / "docs" / "model_elsewhere.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the page's environment."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (commands,) = (block for block in blocks("sh") if "onnx" in block)
    for line in commands.splitlines():
        words = [sys.executable if word == "python3" else word for word in shlex.split(line)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if "No matching distribution" in done.stderr or "ConnectionError" in done.stderr:
            pytest.skip("no package index can be reached")
        assert done.returncode == 0, done.stderr
    return folder / "onnx" / "bin" / "python"


def test_onnx_and_eight_bits_give_the_models_vectors(python: Path, tmp_path: Path) -> None:
    corpus = midmask.Corpus.from_texts(toy.texts(), queries=toy.queries(), relevant=range(toy.DOCUMENTS))
    run = midmask.train("retromae", corpus, seed=5, settings=toy.SETTINGS, storage=tmp_path / "store", progress=False)
    export, fast = blocks("python")
    assert FOLDER in export
    script = f"""
{export.replace(FOLDER, str(run.model))}
{fast}
import json
print(json.dumps([one.encode_document({TEXTS!r}).tolist() for one in (model, fast)]))
"""
    done = subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole, eight_bits = np.array(json.loads(done.stdout.splitlines()[-1]))
    own = run.encoder().encode_document(TEXTS)
    assert abs(whole - own).max() < 1e-4 * abs(own).max()
    lengths = np.linalg.norm(eight_bits, axis=1) * np.linalg.norm(own, axis=1)
    cosines = (eight_bits * own).sum(axis=1) / lengths
    assert cosines.min() > 0.95 and cosines.max() < 1, "close, and not the same model"
