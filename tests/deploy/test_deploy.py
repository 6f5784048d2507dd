"""What deploy/ holds, by the validators of those who read it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def command(name: str) -> str:
    """A validator of the extra `dev`, beside this Python."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: pip install -c constraints.txt -e '.[dev]'")
    return found


def test_hadolint_accepts_the_dockerfile() -> None:
    done = subprocess.run([command("hadolint"), DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_shellcheck_accepts_the_scripts() -> None:
    scripts = [DEPLOY / "slurm.sh", ROOT / ".ci/run", ROOT / ".ci/venv"]
    done = subprocess.run([command("shellcheck"), *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_slurm_script_asks_for_a_job_and_for_sbatch() -> None:
    script = DEPLOY / "slurm.sh"
    for arguments, message in (([], "no job. Type: sbatch"), (["jobs/pretrain.py"], "run this with sbatch")):
        done = subprocess.run(
            ["bash", script, *arguments], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert done.returncode != 0 and message in done.stderr


def test_the_image_gets_all_that_it_copies_and_nothing_else() -> None:
    """Each COPY names what is there and what the ignore file lets through; the jobs' folders are all there."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = {part for line in lines if line.startswith("COPY") for part in line.split()[2:-1]}
    allowed = {
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    assert {"platform", "jobs", "search_spaces", "dashboards"} <= copied


def test_the_compose_file_is_one_and_publishes_on_loopback_alone() -> None:
    compose_spec = pytest.importorskip("compose_spec")
    config = load("compose.yaml")
    compose_spec.ComposeSpecification.model_validate(config)
    ports = [port for service in config["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 3 and all(port.startswith("127.0.0.1:") for port in ports)
    waited_for = {name for service in config["services"].values() for name in service.get("depends_on", {})}
    assert waited_for <= config["services"].keys()


def test_no_secret_is_written_down_and_each_has_a_line_to_fill_in() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    demanded = set(re.findall(r"\$\{(\w+):\?", text))
    offered = dict(
        line.split("=", 1)
        for line in (DEPLOY / "example.env").read_text().splitlines()
        if "=" in line and line[0] != "#"
    )
    assert offered == dict.fromkeys(demanded, "")
    ignored = subprocess.run(["git", "check-ignore", "deploy/.env"], cwd=ROOT, capture_output=True)
    assert ignored.returncode == 0, "git must ignore deploy/.env"


def test_ray_accepts_its_cluster_file() -> None:
    config = prepare_config(load("ray-up.yaml"))
    validate_config(config)
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"] == {"CPU": 0}
    assert all("RAY_AUTH_MODE=token" in " ".join(config[f"{kind}_start_ray_commands"]) for kind in ("head", "worker"))


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_kubernetes_accepts_the_pods(name: str) -> None:
    """The pods by Kubernetes' own schema, unknown fields refused; Ray's version is the image's."""
    kubernetes = pytest.importorskip("kubernetes_validate")
    manifest = load(f"kuberay/{name}.yaml")
    cluster = manifest["spec"].get("rayClusterSpec", manifest["spec"])
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]}
        kubernetes.validate(pod, kubernetes.latest_version(), strict=True)
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned and cluster["rayVersion"] == pinned[1]
    assert cluster["authOptions"] == {"mode": "token"}
