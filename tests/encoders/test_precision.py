"""What `precision = auto` means: bf16 where the processor has it and gains by it, settled once for all fingerprints."""

import logging
from pathlib import Path

import pytest
import torch

from midmask.encoders.precision import SWITCH, autocast_type, processor_precision
from midmask.experiment.plan import Plan, plan
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.encoders.bf16 import needs_bf16
from tests.support.unread import Unread

WIDE = 512
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def planned(name: str = "small") -> Plan:
    return plan(override(RECIPES["retromae"](), {"backbone.name": name}), Unread())


def precisions(steps: Plan) -> dict[str, str]:
    evaluation = steps.evaluation(RECIPES["retromae"]().evaluation)
    found = {step.name: step for step in evaluation.upstream()}
    trained = {name: found[name].config.train.precision for name in ("pretrain", "finetune")}
    return {**trained, "encode": found["encode"].config.precision}


def test_a_processor_without_it_takes_fp32_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "0")
    with caplog.at_level(logging.INFO):
        assert precisions(planned()) == {"pretrain": "auto", "finetune": "auto", "encode": "fp32"}
    assert autocast_type("auto", CPU) is None
    assert any("fp32" in line and SWITCH in line for line in caplog.messages)


@needs_bf16
def test_the_probe_is_made_once_and_its_result_is_in_plans_and_fingerprints(empty_cache: Path) -> None:
    torch.set_num_threads(3)
    first = processor_precision(WIDE)
    assert torch.get_num_threads() == 3
    (kept,) = (empty_cache / "bf16").iterdir()
    assert (float(kept.read_text()) >= 1.2) == (first["precision"] == "bf16")
    kept.write_text("9.0")
    assert processor_precision(WIDE) == {"precision": "bf16"}
    fast = planned()
    assert precisions(fast) == {"pretrain": "bf16", "finetune": "bf16", "encode": "bf16"}
    kept.write_text("0.5")
    assert processor_precision(WIDE) == {"precision": "auto"}
    slow = planned()
    assert precisions(slow) == {"pretrain": "auto", "finetune": "auto", "encode": "fp32"}
    assert fast.pretrained and slow.pretrained and fast.pretrained.fingerprint != slow.pretrained.fingerprint
    assert fast.tokens.fingerprint == slow.tokens.fingerprint


def test_a_tiny_encoder_is_not_probed(empty_cache: Path) -> None:
    assert precisions(planned("tiny"))["pretrain"] == "auto" and not empty_cache.exists()


def test_what_is_set_by_hand_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    changed = override(RECIPES["mlm"](), {"backbone.name": "small", "pretrain.precision": "fp32"})
    steps = plan(changed, Unread())
    assert steps.pretrained is not None and steps.pretrained.config.train.precision == "fp32"
    assert autocast_type("bf16", CPU) is torch.bfloat16 and autocast_type("fp32", CPU) is None
