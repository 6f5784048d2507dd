"""README.md of a verdict's model: what it was chosen from and by what, with the figures, in sentence-transformers'
format. What each library sees of the model is in the card that its own folder has (`encoders.model_card`).
"""

import re

from midmask.choice import wording
from midmask.choice.report_text import bullets, systems_table, table_note, text, use
from midmask.choice.verdict import Verdict

TAGS = ("sentence-transformers", "feature-extraction", "midmask")

MODEL, FOLDER = ".", ".."
"""The model's and the verdict's folder as the card names them: as seen from the model's, since folders are moved."""

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_TITLE = re.compile(r"\A\s*# [^\n]*\n")


def model_card(verdict: Verdict, folder_card: str = "") -> str:
    """The text of README.md in `model/`.

    Args:
        folder_card: README.md that the training wrote into that folder. What it says of views, libraries and origin is
            kept, under a heading of its own.

    Raises:
        UserError: if the recommended system is not among the verdict's systems.
    """
    taken = verdict.delivered
    shown = (taken, verdict.recommended)
    found = wording.loader(taken.representation)
    inherited = _TITLE.sub("", _FRONT_MATTER.sub("", folder_card)).strip()
    parts = [
        _front_matter(found),
        f"# {text(taken.label)}, {text(_origin(verdict))}",
        f"Chosen by midmask from {len(verdict.systems)} systems, without labelled queries. "
        f"{text(wording.headline(verdict))} {text(wording.certainty(verdict))}",
        "## How to load",
        *use(verdict, MODEL, FOLDER),
        "The model's folder is `.` here and the verdict's is `..`; nothing is fetched from a network.",
        "## Data",
        f"{verdict.passages:,} passages of {text(verdict.corpus)}. {text(wording.query_sentence(verdict.queries))} "
        "Nobody asked these queries: they were made from the passages.",
        bullets(f"{name}: {count:,}" for name, count in verdict.queries.source.items()),
        "## Method and protocol",
        f"System {text(taken.system)}, representation {text(taken.representation)}. {text(_method(verdict))} Systems "
        f"were given up by dev queries; the figures are of test queries. {text(verdict.recommendation.reason)}",
        "## Figures",
        systems_table(verdict, [one for one in verdict.finalists if one in shown or one.label == verdict.baseline]),
        text(table_note(verdict)),
        text(" ".join(wording.belief(verdict.calibration))),
        "## Limits",
        bullets(verdict.limits) or "No limits were recorded.",
        *(["## The folder", inherited] if inherited else []),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _origin(verdict: Verdict) -> str:
    """Whether the model was trained on the documents or only chosen for them."""
    if verdict.delivered.training == "none":
        return f"chosen for {verdict.corpus}, not trained on it"
    return f"trained on {verdict.corpus}"


def _method(verdict: Verdict) -> str:
    if verdict.delivered.training == "none":
        return "Its weights are those that all systems start from, unchanged."
    return f"Training on these documents: {verdict.delivered.training}. All trained systems had the same queries."


def _front_matter(loader: str | None) -> str:
    """Tags of the model as YAML. Without a loader it is not one of sentence-transformers."""
    tags = [tag for tag in TAGS if loader or tag != "sentence-transformers"]
    tags += ["sparse-encoder"] if loader == "SparseEncoder" else []
    lines = [f"library_name: {'sentence-transformers' if loader else 'transformers'}", "tags:"]
    lines += [f"- {tag}" for tag in tags]
    return "\n".join(["---", *lines, "pipeline_tag: feature-extraction", "---"])
