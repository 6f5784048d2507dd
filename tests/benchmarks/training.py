"""Masks, training steps, vocabulary heads and bf16, on made-up texts."""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from midmask.batch import TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.precision import Precision
from midmask.heads import linear_column_max, linear_cross_entropy
from midmask.masking import corrupt, select_words, visibility
from midmask.objectives import PRETRAINING
from midmask.objectives.sample import full_rows, pretraining_batch, sample_vocabulary
from midmask.pretrained import model_folder
from midmask.randomness.masks import Purpose
from midmask.retrieve.models import open_encoder
from midmask.retrieve.vectors import Encoding, encode_rows
from midmask.training.loop import Divided, accumulate
from midmask.training.optimiser import TrainConfig
from midmask.vocabulary import Vocabulary
from tests.benchmarks.harness import MEBIBYTE, Bench, extra_memory, in_a_process
from tests.support.steps import interleaved, objective_named, training_step

Work = Callable[[], object]
RATIO = 0.5


def masks(bench: Bench) -> None:
    """RetroMAE's visibility masks against the published construction in plain Python, both of 4 texts."""
    rows, length, words = 4, bench.size(512, 64), sample_vocabulary()
    text = full_rows(rows, length, words, seed=1)
    first = int(words.continues_V.long().argmax())
    named = {words.cls_id: "[CLS]", words.sep_id: "[SEP]"}
    strings = [
        [named.get(token, f"##{token}" if token >= first else str(token)) for token in row]
        for row in text.ids_BL.tolist()
    ]
    ours = partial(visibility, text, words, ratio=RATIO, independent=False)
    bench.compare(f"{rows} x {length}", ours, lambda: published_masks(strings), goal=50, rival="published")


def published_draw(tokens: list[str]) -> list[int]:
    """One whole-word mask over token strings."""
    words: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if words and token.startswith("##"):
            words[-1].append(position)
        else:
            words.append([position])
    random.shuffle(words)
    quota = min(512, max(1, round(len(tokens) * RATIO)))
    hidden: set[int] = set()
    for word in words:
        if len(hidden) >= quota:
            break
        if len(hidden) + len(word) <= quota:
            hidden.update(word)
    return [1 if position in hidden else 0 for position in range(len(tokens))]


def published_masks(texts: list[list[str]]) -> torch.Tensor:
    """For each position of a text a copy of one of min(L, 256) draws, with one more entry hidden."""
    visible = []
    for tokens in texts:
        pool = [published_draw(tokens) for _ in range(min(len(tokens), 256))]
        rows = []
        for position in range(len(tokens)):
            mask = deepcopy(pool[random.randint(0, len(pool) - 1)])
            mask[position] = 1
            rows.append(mask)
        visible.append(1 - torch.tensor(rows))
    return torch.stack(visible)


CACHED = "cocondenser, cached"
STEP_GOALS = {
    **{"retromae": 1.25, "dupmae": 1.6, "lexmae": 1.5, "cocondenser": 1.4, CACHED: 1.9, "cotmae": 1.6},
    **{"mlm": None, "rom": None},
}
"""How many times Hugging Face's masked LM step each may take."""
SPANS, LENGTH = 16, 128


def steps(bench: Bench) -> None:
    """A step of `mini`, AdamW included, against Hugging Face's masked LM with ready-made masks: the same encoded spans,
    V = 30,522, fp32. Methods that read two spans have 8 rows; `cached` has micro-batches of a quarter.
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
    method = name.partition(",")[0]
    objective, config = objective_named(method, backbone, words), PRETRAINING[method].Config()
    rows = SPANS // 2 if config.reads().rows == "spans" else SPANS
    batch = pretraining_batch(config, words, rows=rows, length=LENGTH)
    if name != CACHED:
        return training_step(objective, batch)
    model, optimiser, quarter = Divided(objective), torch.optim.AdamW(objective.parameters(), lr=1e-4), rows // 4
    train = TrainConfig(steps=1, batch_size=rows, learning_rate=1e-4, micro_batch=quarter, precision="fp32")

    def part(text: TokenRows, at: int) -> TokenRows:
        return TokenRows(*(each[at : at + quarter] for each in (text.ids_BL, text.lengths_B, text.keys_B)))

    batches = [
        replace(batch, texts={key: part(text, at) for key, text in batch.texts.items()})
        for at in range(0, rows, quarter)
    ]

    def step() -> None:
        optimiser.zero_grad()
        accumulate(model, objective, train, batches, ())
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


TYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


def bf16(bench: Bench) -> None:
    """bf16 against fp32 on a processor with a pre-trained backbone (the extra `pretrained`): steps, and encoding."""
    words = Vocabulary.of(model_folder("minilm"))
    rows = bench.size(16, 4)
    for name in bench.size(("mlm", "retromae", "dupmae"), ("mlm",)):
        batch = pretraining_batch(PRETRAINING[name].Config(), words, rows=rows, length=LENGTH)
        works = [training_step(objective_named(name, "minilm", words), batch, bf16=kind == "bf16") for kind in TYPES]
        bench.compare(name, works[1], works[0], goal=1.7, rival="fp32")
    rng = np.random.default_rng(0)
    texts = [rng.integers(2000, words.size, length) for length in rng.integers(8, 257, rows * 4)]
    encoder = open_encoder(model_folder("minilm"), words, "passage")
    works = [partial(encode_rows, encoder, texts, Encoding(words.pad_id, precision=kind)) for kind in TYPES]
    bench.compare("encoding", works[1], works[0], goal=1.8, rival="fp32")
    products = interleaved({k: partial(torch.matmul, *[torch.rand(2048, 2048).to(t)] * 2) for k, t in TYPES.items()}, 3)
    bench.say(f"a product of 2,048 x 2,048: {products['fp32'] / products['bf16']:.1f} times as fast")
