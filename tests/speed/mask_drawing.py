"""RetroMAE's visibility masks for 64 x 512 tokens: vectorised, against the published construction.

    python -m tests.speed.mask_drawing [--rounds 3] [--step-rows 8]

The published construction, as the paper's code does it, written here in plain Python: for each text min(L, 256)
whole-word draws over token strings, then for each of its L positions a copied list with one more entry hidden, then one
integer tensor. It is timed on 4 of the 64 texts and multiplied by 16, since every text costs the same. The training
step of `mini` is timed on `--step-rows` rows of 512 tokens and scaled to 64, AdamW (which does not grow with the batch)
counted once.
"""

import argparse
import random
import time
from collections.abc import Callable
from copy import deepcopy
from statistics import median

import torch

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.masking import visibility
from midmask.objectives import build_objective
from midmask.objectives.pretraining.retromae import RetroMAE
from midmask.objectives.sample import full_rows, sample_vocabulary
from midmask.vocabulary import Vocabulary

ROWS, LENGTH, RATIO, SAMPLE = 64, 512, 0.5, 4


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


def token_strings(text: TokenRows, words: Vocabulary, rows: int) -> list[list[str]]:
    named = {words.cls_id: "[CLS]", words.sep_id: "[SEP]"}
    first = int(words.continues_V.long().argmax())
    return [
        [named.get(token, f"##{token}" if token >= first else str(token)) for token in row]
        for row in text.ids_BL[:rows].tolist()
    ]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def training_step(words: Vocabulary, rows: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A forward and backward pass of RetroMAE on `mini`, masks drawn outside; and its optimiser's step."""
    text = full_rows(rows, LENGTH, words, seed=3)
    objective = build_objective(RetroMAE.Config(), build_backbone(BackboneConfig(name="mini"), words, seed=0), words)
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-4)
    drawn = objective.draw(Batch(0, {"passage": text}))

    def passes() -> None:
        optimiser.zero_grad()
        loss = objective(drawn)
        loss.total({part: value.count for part, value in loss.parts.items()}).backward()

    return passes, optimiser.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step-rows", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(2)
    words = sample_vocabulary()
    text = full_rows(ROWS, LENGTH, words, seed=1)
    strings = token_strings(text, words, SAMPLE)
    passes, update = training_step(words, options.step_rows)

    def vectorised() -> torch.Tensor:
        return visibility(text, words, ratio=RATIO, independent=False)

    taken: dict[str, list[float]] = {"published": [], "vectorised": [], "passes": [], "update": []}
    works = {
        "published": lambda: published_masks(strings),
        "vectorised": vectorised,
        "passes": passes,
        "update": update,
    }
    for turn in range(options.rounds + 1):
        for name, work in works.items():
            value = seconds(work)
            if turn:
                taken[name].append(value)
    typical = {name: median(values) for name, values in taken.items()}
    published = typical["published"] * ROWS / SAMPLE
    step = typical["passes"] * ROWS / options.step_rows + typical["update"]
    print(f"published   {published * 1000:9.0f} ms for {ROWS} x {LENGTH}, from {SAMPLE} texts")
    print(f"vectorised  {typical['vectorised'] * 1000:9.0f} ms for {ROWS} x {LENGTH}")
    print(f"mini step   {step * 1000:9.0f} ms for {ROWS} x {LENGTH}, from {options.step_rows} rows")
    print(f"ratio {published / typical['vectorised']:.0f} times faster (goal 50)")
    print(f"ratio {typical['vectorised'] / step:.4f} of a training step (goal 0.03)")


if __name__ == "__main__":
    main()
