"""What deploy/ holds, by the validators of those who read it."""

import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.mark.parametrize(
    ("program", "files"),
    [("hadolint", ["deploy/Dockerfile"]), ("shellcheck", ["deploy/slurm.sh", ".ci/run", ".ci/venv"])],
)
def test_a_linter_accepts(program: str, files: list[str]) -> None:
    found = shutil.which(program, path=str(Path(sys.executable).parent)) or shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: pip install -c constraints.txt -e '.[dev]'")
    done = subprocess.run([found, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_gets_all_that_it_copies_and_nothing_else() -> None:
    """Each COPY names what is there and what the ignore file lets through; the jobs' folders are all there."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = {part for line in lines if line.startswith("COPY") for part in line.split()[2:-1]}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)
    assert {"platform", "jobs", "search_spaces", "dashboards"} <= copied


def test_the_compose_file_is_one_and_publishes_on_loopback_alone() -> None:
    compose_spec = pytest.importorskip("compose_spec")
    config = load("compose.yaml")
    compose_spec.ComposeSpecification.model_validate(config)
    ports = [port for service in config["services"].values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    waited_for = {name for service in config["services"].values() for name in service.get("depends_on", {})}
    assert waited_for <= config["services"].keys()


def test_no_secret_is_written_down_and_each_has_a_line_to_fill_in() -> None:
    demanded = re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.yaml").read_text())
    lines = (DEPLOY / "example.env").read_text().splitlines()
    assert dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#") == dict.fromkeys(demanded, "")
    ignored = subprocess.run(["git", "check-ignore", "deploy/.env"], cwd=ROOT, capture_output=True)
    assert ignored.returncode == 0, "git must ignore deploy/.env"


def test_ray_accepts_its_cluster_file_which_works_beside_its_head_and_asks_for_a_token() -> None:
    """By Ray's own schema."""
    config, schema = load("ray-up.yaml"), files("ray") / "autoscaler" / "ray-schema.json"
    pytest.importorskip("jsonschema").validate(config, json.loads(schema.read_text()))
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"] == {"CPU": 0}
    assert all("RAY_AUTH_MODE=token" in " ".join(config[f"{kind}_start_ray_commands"]) for kind in ("head", "worker"))


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_kubernetes_accepts_the_pods(name: str) -> None:
    """The pods by Kubernetes' own schema, unknown fields refused; Ray's version is the image's."""
    kubernetes = pytest.importorskip("kubernetes_validate")
    manifest = load(f"kuberay/{name}.yaml")
    cluster = manifest["spec"].get("rayClusterSpec", manifest["spec"])
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]}
        kubernetes.validate(pod, kubernetes.latest_version(), strict=True)
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned and cluster["rayVersion"] == pinned[1]
    assert cluster["authOptions"] == {"mode": "token"}
