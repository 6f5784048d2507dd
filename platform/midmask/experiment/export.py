"""Writes what a plan has prepared as files that other tools read."""

from collections.abc import Collection

from midmask.artifact import Place, load
from midmask.corpora.export import export_beir
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import span_texts
from midmask.exchange.spans_file import write_spans
from midmask.experiment.plan import Plan

SPANS = "spans.jsonl.gz"


def export(steps: Plan, storage: Place, folder: Place, derived: Collection[str]) -> None:
    """Writes the corpus as a BEIR folder, and into it the spans (`exchange.spans_file`), if they are among `derived`.

    The steps have to be finished.
    """
    export_beir(load(steps.corpus.place(storage)).place, folder)
    if "spans" in derived and isinstance(steps.spans.config, SpansConfig):
        inputs = {name: load(step.place(storage)) for name, step in steps.spans.inputs.items()}
        write_spans(folder / SPANS, span_texts(steps.spans.config, inputs, load(steps.spans.place(storage)).place))
