"""Which model an evaluation is of."""

from midmask.experiment.step import Step


def model_step(evaluation: Step) -> Step | None:
    """The step whose model was evaluated; None for BM25."""
    ranked = evaluation.inputs["ranked"]
    ranked = ranked.inputs["encoder"] if ranked.name == "fuse" else ranked
    return ranked.inputs["passages"].inputs["model"] if ranked.name == "search" else None
