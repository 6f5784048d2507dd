"""The trace of a training: every step once, with the data read and the losses, across kills and restarts.

Steps are kept on the device and written in chunks, `trace/<first step>.jsonl`, each just before the checkpoint that
ends it. A run that goes on from a checkpoint drops the later chunks and writes them again.
"""

import json
from typing import Any

import pyarrow as pa

from midmask.store.place import Place
from midmask.store.tables import read_table, write_table
from midmask.training.loop import StepRecord
from midmask.training.plan import BatchPlan

LAST_STEPS = 20
"""Steps over whose losses the result of a training is the mean."""


class Trace:
    """The steps since the last checkpoint, and the chunks written so far.

    Args:
        parts: names of the loss's terms.
        writes: whether this worker writes (rank 0); all keep and check.
    """

    def __init__(self, out: Place, parts: tuple[str, ...], plan: BatchPlan, *, writes: bool) -> None:
        self._folder = out / "trace"
        self._names = parts
        self._plan = plan
        self._writes = writes
        self._pending: list[StepRecord] = []
        self._rows: list[dict[str, Any]] = []

    def begin(self, step: int) -> None:
        """Drops the rows that a killed run wrote for `step` and later."""
        if self._writes:
            for name in self._folder.names():
                if int(name.split(".")[0]) >= step:
                    (self._folder / name).delete()

    def add(self, record: StepRecord) -> None:
        self._pending.append(record)

    def settle(self) -> list[dict[str, Any]]:
        """The rows of the steps added since the last call, moved off the device."""
        rows = [self._row(record) for record in self._pending]
        self._pending = []
        self._rows += rows
        return rows

    def _row(self, record: StepRecord) -> dict[str, Any]:
        loss, *sums = record.sums.tolist()
        *counts, tokens, slots, digest = record.counts.tolist()  # `ReadCounts` at the end
        parts = {
            f"part/{name}": total / count if count else None
            for name, total, count in zip(self._names, sums, counts, strict=True)
        }
        norm, heads_norm = record.gradient_norms.tolist()
        return {
            "step": record.step,
            "epoch": self._plan.epoch_of(record.step),
            "loss": loss,
            **parts,
            "learning_rate": record.learning_rate,
            "gradient_norm": norm,
            "heads_gradient_norm": heads_norm,
            "tokens": int(tokens),
            "slots": int(slots),
            "wait_seconds": record.wait_seconds,
            "seconds": record.seconds,
            "first_after_start": record.first,
            "digest": int(digest),
            "rows": self._plan.rows(record.step).tolist(),
        }

    def flush(self) -> None:
        """Writes the settled rows as one chunk."""
        if self._rows and self._writes:
            text = "".join(json.dumps(row) + "\n" for row in self._rows)
            (self._folder / f"{self._rows[0]['step']:08d}.jsonl").write(text.encode())
        self._rows = []

    def finish(self, out: Place, steps: int, before: Place | None) -> pa.Table:
        """All chunks, after the trace of the run that this one continues, as `trace.parquet` of `steps` rows."""
        target = out / "trace.parquet"
        if target.exists() and len(table := read_table(target)) == steps:
            return table
        lines = [
            json.loads(line) for name in self._folder.names() for line in (self._folder / name).read().splitlines()
        ]
        earlier = read_table(before).to_pylist() if before is not None else []
        table = pa.Table.from_pylist([*earlier, *lines])
        write_table(table, target, compression="snappy")
        return table


def trace_summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Means over the steps since the last report, under the names they are tracked by; parts without a target: none."""
    seconds = sum(row["seconds"] for row in rows)
    tokens = sum(row["tokens"] for row in rows)
    names = ["loss", "gradient_norm", "heads_gradient_norm", *(name for name in rows[0] if name.startswith("part/"))]
    known = {name: [row[name] for row in rows if row[name] is not None] for name in names}
    means = {
        f"train/{name.removeprefix('part/')}": sum(values) / len(values) for name, values in known.items() if values
    }
    return {
        **means,
        "train/learning_rate": rows[-1]["learning_rate"],
        "train/epoch": float(rows[-1]["epoch"]),
        "train/step_seconds": seconds / len(rows),
        "train/tokens_per_second": tokens / seconds,
        "train/padded_share": 1 - tokens / sum(row["slots"] for row in rows),
        "train/data_wait_share": sum(row["wait_seconds"] for row in rows) / seconds,
    }


def trace_totals(trace: pa.Table) -> dict[str, Any]:
    """A whole run in a few numbers; losses are means over the last `LAST_STEPS`."""
    columns = {name: trace[name].to_numpy() for name in trace.column_names if name != "rows"}
    last = {name: [value for value in trace[name].to_pylist()[-LAST_STEPS:] if value is not None] for name in columns}
    going = ~columns["first_after_start"].astype(bool)  # the first step also waits for files to be opened
    wait, seconds = columns["wait_seconds"][going].sum(), columns["seconds"][going].sum()
    return {
        "steps": len(trace),
        "loss": float(columns["loss"][-LAST_STEPS:].mean()),
        "parts": {
            name.removeprefix("part/"): sum(values) / len(values)
            for name, values in last.items()
            if name.startswith("part/") and values
        },
        "tokens": int(columns["tokens"].sum()),
        "padded_share": float(1 - columns["tokens"].sum() / columns["slots"].sum()),
        "seconds": round(float(columns["seconds"].sum()), 3),
        "data_wait_share": float(wait / seconds) if seconds else 0.0,
    }
