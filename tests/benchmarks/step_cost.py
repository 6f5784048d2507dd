"""What a RetroMAE training step costs, as a multiple of Hugging Face's masked LM step.

    python -m tests.benchmarks.step_cost [--backbone base] [--rounds 9] [--objective retromae]

Same backbone shape and starting weights, same 16 x 128 full rows, V = 30,522, fp32, 2 threads, eager, AdamW included on
both sides; steps alternate and medians are compared. Hugging Face's side gets ready-made masks for nothing; ours draws
its own.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.masking import Purpose, corrupt, row_keys, select_words
from midmask.nouns import Batch, TokenRows
from midmask.objectives import OBJECTIVES, build_objective
from midmask.vocabulary import Vocabulary

GOALS = {"retromae": 1.25, "mlm": 1.0}
CONTINUATIONS = 0.2
"""Share of tokens that continue a word, about that of English text under BERT's vocabulary."""


def vocabulary(size: int = 30522) -> Vocabulary:
    """A vocabulary without strings: the specials first, then whole words, the last fifth continuations."""
    ids = torch.arange(size)
    return Vocabulary(size, 0, 2, 3, 4, 1, ids >= size * 4 // 5, (ids < 5) & (ids != 1), (ids > 5) & (ids < 200))


def full_rows(rows: int, length: int, words: Vocabulary, *, seed: int) -> TokenRows:
    """Random texts of exactly `length` tokens, [CLS] and [SEP] included."""
    generator = torch.Generator().manual_seed(seed)
    first = int(words.continues_V.long().argmax())
    ids = torch.randint(5, first, (rows, length), generator=generator)
    pieces = torch.randint(first, words.size, (rows, length), generator=generator)
    ids = torch.where(torch.rand((rows, length), generator=generator) < CONTINUATIONS, pieces, ids)
    ids[:, 0], ids[:, -1] = words.cls_id, words.sep_id
    return TokenRows(ids, torch.full((rows,), length), row_keys(seed, 0, np.arange(rows)))


def hugging_face_step(backbone: str, words: Vocabulary, text: TokenRows) -> Callable[[], None]:
    model = build_backbone(BackboneConfig(name=backbone), words, seed=0).model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    options = {"ratio": 0.15, "purpose": Purpose.SELECT}
    selected = select_words(text, words, **options)
    ids, seen = corrupt(text, selected, words), torch.ones_like(text.ids_BL)
    labels = torch.where(selected, text.ids_BL, -100)

    def step() -> None:
        optimiser.zero_grad()
        model(input_ids=ids, attention_mask=seen, labels=labels).loss.backward()
        optimiser.step()

    return step


def midmask_step(name: str, backbone: str, words: Vocabulary, text: TokenRows) -> Callable[[], None]:
    encoder = build_backbone(BackboneConfig(name=backbone), words, seed=0)
    objective = build_objective(OBJECTIVES[name].Config(), encoder, words).train()
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-4)
    batch = Batch(0, {"passage": text})

    def step() -> None:
        optimiser.zero_grad()
        loss = objective(objective.draw(batch))
        loss.total({part: value.count for part, value in loss.parts.items()}).backward()
        optimiser.step()

    return step


def interleaved(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each, taken in turn; one round of warming up comes first."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="mini")
    parser.add_argument("--objective", default="retromae", choices=sorted(GOALS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    words = vocabulary()
    text = full_rows(16, 128, words, seed=1)
    steps = {
        "hugging face mlm": hugging_face_step(options.backbone, words, text),
        options.objective: midmask_step(options.objective, options.backbone, words, text),
    }
    seconds = interleaved(steps, options.rounds)
    for name, value in seconds.items():
        print(f"{name:18} {value * 1000:8.0f} ms per step")
    ratio = seconds[options.objective] / seconds["hugging face mlm"]
    print(f"ratio {ratio:.3f} ({options.backbone}, 16 x 128, V 30522; goal {GOALS[options.objective]:.2f})")


if __name__ == "__main__":
    main()
