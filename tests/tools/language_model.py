"""The general language model that ships: its accuracy on masked tokens, and its folder in half precision.

    python -m tests.tools.language_model accuracy FOLDER CORPUS [CORPUS …]
    python -m tests.tools.language_model ship FOLDER platform/midmask_lm/wiki-mini

Accuracy: of 2,000 passages of a corpus, drawn by a hash of their ids and cut at 128 tokens, 15% of the tokens are
replaced by [MASK], drawn by a seed; printed are the share that the model's likeliest token is right for, and the mean
loss in nats. `ship` writes weights of 16 bits, which libraries read as numbers of 32, and the tokenizer, beside the
card that is there, and prints the SHA-256 of the weights.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM, AutoTokenizer

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.evaluation.rendering import markdown
from midmask.queries.collection import draw_passages, read_passages
from midmask.store.place import Place

PASSAGES, LENGTH, RATIO, ROWS = 2_000, 128, 0.15, 32


def texts_of(corpus: str) -> list[str]:
    """The drawn passages of a corpus, titles left out."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder)
        prepare(CorpusConfig(name=corpus), {}, place)
        passages = {row.doc_id: row.text for block in read_passages(place) for row in block}
    return [passages[name] for name in sorted(draw_passages(list(passages), 0, "accuracy", PASSAGES))]


@torch.no_grad()
def accuracy(folder: Path, texts: list[str]) -> tuple[int, float, float]:
    """(masked tokens, share that is predicted, mean loss in nats)."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).float().eval()
    form = {"truncation": True, "max_length": LENGTH, "padding": True, "return_tensors": "pt"}
    draws = np.random.default_rng(0)
    count, right, loss = 0, 0, 0.0
    for first in range(0, len(texts), ROWS):
        batch = tokenizer(texts[first : first + ROWS], return_special_tokens_mask=True, **form)
        real = batch.pop("special_tokens_mask") == 0
        masked = real & torch.from_numpy(draws.random(real.shape) < RATIO)
        targets = batch["input_ids"][masked]
        batch["input_ids"] = batch["input_ids"].masked_fill(masked, tokenizer.mask_token_id)
        logits = model(**batch).logits[masked]
        loss += float(F.cross_entropy(logits, targets, reduction="sum"))
        right += int((logits.argmax(-1) == targets).sum())
        count += len(targets)
    return count, right / count, loss / count


def ship(folder: Path, out: Path) -> None:
    """Writes a folder's model with weights of 16 bits, and its tokenizer."""
    AutoModelForMaskedLM.from_pretrained(folder).half().save_pretrained(out)
    settings = json.loads((out / "config.json").read_text()) | {"dtype": "float32"}
    (out / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / file, out / file)
    print(hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest())


if __name__ == "__main__":
    what, folder, *places = sys.argv[1:]
    if what == "ship":
        ship(Path(folder), Path(places[0]))
    else:
        rows = []
        for corpus in places:
            count, share, loss = accuracy(Path(folder), texts_of(corpus))
            rows.append([corpus, f"{count:,}", f"{share:.4f}", f"{loss:.3f}"])
        print(markdown(["corpus", "masked tokens", "accuracy", "loss"], rows))
