"""How many rows of a planned training go through its model at once, as the training itself will find out
(`training.rehearsal`): as many as its device holds of the longest rows."""

from dataclasses import replace

from midmask.estimate.memory import Memory, training_memory
from midmask.estimate.trainings import Lengths, Training, row_tokens
from midmask.training.rehearsal import even_split


def fit(own: Training, longest: Lengths, *, workers: int, room: float | None, kind: str) -> tuple[Training, Memory]:
    """The training with its micro-batch, and the memory of a device that has it; one row if none fits, which
    `refusals` refuses.

    Args:
        longest: tokens of the longest texts, which a GPU must hold; a CPU's limit is told by the mean.
        room: bytes of a device, where `train.memory_gib` does not say otherwise; none: unlimited.
    """
    known = own.room(room)
    stretch = max(1.0, row_tokens(own.config, longest) / own.tokens) if kind == "cuda" else 1.0
    counted = replace(own.counted, kept=stretch * own.counted.kept)

    def memory(fitted: Training) -> Memory:
        rows = fitted.at_once(workers)
        return training_memory(counted, own.sizes, rows=rows, kind=kind, dropout=own.dropout)

    whole = memory(own)
    if known is None or own.train.micro_batch is not None or whole.total <= known:
        return own, whole
    share = own.share(workers)
    fitted = replace(own, fitting=even_split(share, max(1, whole.fitting(share, known))))
    return fitted, memory(fitted)
