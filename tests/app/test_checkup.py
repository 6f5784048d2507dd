"""What is said of a cluster's nodes: each thing that is wrong, once, with what mends it; of a sound one nothing."""

from dataclasses import replace

import pytest

from midmask.app.checkup import CLOCKS_AGREE_S, faults
from midmask.backend.nodes import NodeReport

OWN = {"Python": "3.11.7", "midmask": "1", "torch": "2.13.0", "faiss-cpu": "1.12"}
SOUND = NodeReport("worker", "10.0.0.2", clock=0.01, versions=OWN)
HEAD = replace(SOUND, name="head", address="10.0.0.1")


def said_of(node: NodeReport) -> list[str]:
    of_head, own = faults([HEAD, node], OWN)
    assert of_head == []
    return own


def test_sound_nodes_have_no_faults_nor_has_one_with_the_other_build_of_faiss():
    build = {name: text for name, text in OWN.items() if name != "faiss-cpu"}
    for name in ("faiss-gpu", "faiss-gpu-cu12"):
        there = replace(SOUND, versions={**build, name: "1.11"}, gpus=(1, 1, 1))
        assert faults([HEAD, SOUND, there], OWN) == [[], [], []]


@pytest.mark.parametrize(
    ("changes", "what", "mend"),
    [
        ({"silent": "ModuleNotFoundError: midmask"}, "did not answer", "install midmask there"),
        ({"versions": {**OWN, "torch": "2.12.0"}}, "torch 2.12.0 (2.13.0 here)", "pip install torch==2.13.0"),
        ({"clock": CLOCKS_AGREE_S + 1}, "31 s ahead", "chrony"),
        ({"address": "127.0.1.1"}, "joined as 127.0.1.1", "--node-ip-address"),
        ({"closed": ("10.0.0.1",)}, "does not reach 10.0.0.1", "open the ports"),
        ({"gpus": (2, 0, 0)}, "Ray has 2 GPUs there and torch sees 0", "build of torch for CUDA"),
        ({"gpus": (1, 1, 0)}, "faiss is a build for CPUs", "midmask[gpu]"),
        ({"store": "Access Denied"}, "cannot use the store: Access Denied", ""),
    ],
)
def test_each_fault_is_said_once_with_what_mends_it(changes, what, mend):
    (line,) = said_of(replace(SOUND, **changes))
    assert what in line and mend in line
