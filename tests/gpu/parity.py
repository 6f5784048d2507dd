"""Part `parity`: everything that is computed on a device, against the same on the CPU.

The reference is float64 on the CPU for losses and states. It is float32 on the CPU for what is drawn (whole numbers
must be equal) and for encoding and search, where scores of the reference are products in float64. In fp32 the device
computes without TF32, which is torch's default.
"""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import torch

from tests.gpu.compared import Case, Row, compare
from tests.gpu.objectives import objective_cases
from tests.gpu.page import table
from tests.gpu.parts import encoder_cases, head_cases, mask_cases, retrieval_cases
from tests.support.encoders.tokenizers import write_tokenizer

HEAD = ("kind", "what", "largest relative difference in fp32", "in bf16", "tolerances", "passed")


def all_cases(folder: Path) -> Iterator[Case]:
    """Every case. Args: folder: an empty one, for a tokenizer and encoders."""
    tokenizer = write_tokenizer(folder, "bert")
    return chain(mask_cases(), head_cases(), encoder_cases(), objective_cases(tokenizer), retrieval_cases(tokenizer))


def parity(device: torch.device) -> tuple[str, bool]:
    """The part's section, and whether every case passed."""
    with tempfile.TemporaryDirectory() as folder:
        rows = list(compare(all_cases(Path(folder)), device))
    return report(rows), all(row.passed for row in rows)


def report(rows: Iterable[Row]) -> str:
    """What failed, if anything did, and the table of all cases."""
    rows = list(rows)
    failed = [f"{row.case.kind} {row.case.name}" for row in rows if not row.passed]
    verdict = (
        f"{len(failed)} of {len(rows)} cases fail: {'; '.join(failed)}." if failed else f"All {len(rows)} cases pass."
    )
    return f"{verdict}\n\n{table(HEAD, (row.cells() for row in rows))}"
