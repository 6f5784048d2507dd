"""Training steps and vocabulary heads, on made-up texts."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from midmask.core.batch import Batch
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.heads import linear_column_max, linear_cross_entropy
from midmask.masking.corruption import corrupt, select_words
from midmask.masking.randomness import Purpose
from midmask.objectives import PRETRAINING, Objective, build_objective
from midmask.objectives.sample import full_rows, pretraining_batch
from midmask.text.vocabulary import Vocabulary
from tests.benchmarks.harness import MEBIBYTE, Bench, extra_memory, in_a_process
from tests.support.objectives.texts import sample_vocabulary

Work = Callable[[], object]
STEP_GOALS = {"retromae": 1.25, "dupmae": 1.6, "lexmae": 1.5, "cocondenser": 1.4, "cotmae": 1.6}
STEP_GOALS |= dict.fromkeys(("mlm", "rom"))
"""How many times Hugging Face's masked LM step each may take."""
SPANS, LENGTH = 16, 128


def steps(bench: Bench) -> None:
    """A step of `mini`, AdamW included, against Hugging Face's masked LM with ready-made masks: the same encoded spans,
    V = 30,522, fp32. Methods that read two spans have 8 rows.
    """
    words, backbone = sample_vocabulary(), bench.size("mini", "tiny")
    theirs = hugging_face_step(backbone, words)
    for name, goal in STEP_GOALS.items():
        ours = midmask_step(name, backbone, words)
        bench.compare(name, ours, theirs, goal=goal and round(1 / goal, 2), rival="Hugging Face's MLM")


def hugging_face_step(backbone: str, words: Vocabulary) -> Work:
    text = full_rows(SPANS, LENGTH, words, seed=1)
    model = build_backbone(BackboneConfig(name=backbone), words, seed=0).model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    selected = select_words(text, words, ratio=0.15, purpose=Purpose.SELECT)
    ids, seen = corrupt(text, selected, words), torch.ones_like(text.ids_BL)
    labels = torch.where(selected, text.ids_BL, -100)

    def step() -> None:
        optimiser.zero_grad()
        model(input_ids=ids, attention_mask=seen, labels=labels).loss.backward()
        optimiser.step()

    return step


def midmask_step(name: str, backbone: str, words: Vocabulary) -> Work:
    config = PRETRAINING[name].Config()
    rows = SPANS // 2 if config.row_form().rows == "spans" else SPANS
    batch = pretraining_batch(config, words, rows=rows, length=LENGTH)
    return training_step(objective_named(name, backbone, words), batch)


def objective_named(name: str, backbone: str, words: Vocabulary) -> Objective:
    """An objective with its default settings on a backbone with fresh weights, training."""
    encoder = build_backbone(BackboneConfig.model_validate({"name": backbone}), words, seed=0)
    return build_objective(PRETRAINING[name].Config(), encoder, words).train()


def training_step(objective: Objective, batch: Batch, *, bf16: bool = False) -> Callable[[], None]:
    """Masks, forward and backward pass, and AdamW, on the device the objective and the batch are on."""
    kind = batch.texts["passage"].ids_BL.device.type
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-4, fused=kind == "cuda")

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(kind, torch.bfloat16, enabled=bf16):
            loss = objective(objective.draw(batch))
        loss.total({part: value.count for part, value in loss.parts.items()}).backward()
        optimiser.step()

    return step


V, ROWS = 30522, 32
HEAD_GOALS = {256: (1 / 0.9, 1 / 0.75), 768: (1 / 1.0, 1 / 0.85)}
"""Of time, by width: of the full-row loss and of the column maximum. Of memory it is 5."""


def heads(bench: Bench) -> None:
    """The fused vocabulary heads, forward and backward, against F.linear with F.cross_entropy, or with masked_fill and
    max(1) as published code has it. Memory is that of a process of its own beyond inputs and gradients.
    """
    rows, entries = bench.size(ROWS, 2), bench.size(V, 512)
    for width, goals in HEAD_GOALS.items():
        works = head_passes(width, rows, entries)
        for head, goal in zip(("loss", "maximum"), goals, strict=True):
            what = f"{head}, d = {width}"
            bench.compare(f"{what}, time", works[head], works[f"plain {head}"], goal=round(goal, 2), rival="plain")
            ours, theirs = (
                in_a_process("training.head_memory", name, width, rows, entries) / MEBIBYTE
                for name in (head, f"plain {head}")
            )
            bench.ratio(f"{what}, memory", max(ours, 0.1), theirs, "MiB", goal=5, rival="plain")


def head_memory(name: str, width: int, rows: int, entries: int) -> int:
    torch.set_num_threads(1)
    small, work = head_passes(width, 1, 512)[name], head_passes(width, rows, entries)[name]
    return extra_memory(small, work)


def head_passes(width: int, rows: int, entries: int) -> dict[str, Work]:
    """One forward and backward pass of each head, adding to the same gradients."""
    draw = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, width, generator=draw) / width**0.5 for n in (rows * LENGTH, entries))
    inputs = [tensor.requires_grad_() for tensor in (hidden, weight, torch.zeros(entries))]
    for tensor in inputs:
        tensor.grad = torch.zeros_like(tensor)
    labels = torch.randint(0, entries, (rows * LENGTH,), generator=draw)
    upstream = torch.randn(rows, entries, generator=draw)
    pooled = torch.ones(rows, LENGTH, dtype=torch.bool)
    pooled[:, 0] = pooled[:, -1] = False

    def masked() -> torch.Tensor:
        logits = F.linear(*inputs).view(rows, LENGTH, entries)
        return logits.masked_fill(~pooled[:, :, None], -torch.inf).max(1).values

    def fused() -> torch.Tensor:
        return linear_column_max(inputs[0].view(rows, LENGTH, width), *inputs[1:], pooled)

    return {
        "plain loss": lambda: F.cross_entropy(F.linear(*inputs), labels, reduction="sum").backward(),
        "loss": lambda: linear_cross_entropy(*inputs, labels).backward(),
        "plain maximum": lambda: masked().backward(upstream),
        "maximum": lambda: fused().backward(upstream),
    }
