"""The notes below a table about ranked lists that were read from run files."""

from collections.abc import Iterator

from midmask.artifact import Artifact

TIES = {"midmask": "by document id, as for every other system", "trec_eval": "by document id descending, as trec_eval"}


def run_note(label: str, done: Artifact) -> str:
    """What was read, and how ties were broken; `label`: the system's name."""
    run = done.result["read"]["run"]
    tied = f"; {run['tied']:,} rows share their score with another, ties {TIES[run['ties']]}" if run["tied"] else ""
    return f"{label}: a run file of {run['queries']:,} queries and {run['rows']:,} rows{tied}."


def run_warnings(label: str, done: Artifact) -> Iterator[str]:
    """A line for each kind of query, document or row that was not there, or does not count."""
    run, result, depth = done.result["read"]["run"], done.result, done.record["config"]["depth"]
    place = f"{label}, {result['corpus']} {result['split']}"
    if lacking := result["without_results"]:
        yield f"Warning: {place}: the run lacks {lacking:,} of the {result['queries']:,} queries; they score 0."
    if more := run["left_out_queries"]:
        yield f"{place}: {more:,} queries of the run are not judged there and are left out."
    if unread := run.get("unread_queries"):
        yield (
            f"Warning: {place}: {unread:,} queries of the run are judged, but the collection has no text of them; they "
            "are left out. To count them, add them to its queries."
        )
    if run["unknown_documents"]:
        yield (
            f"Warning: {place}: unjudged documents of the run that the collection lacks: {run['unknown_documents']:,}, "
            f"in {run['unknown_rows']:,} rows; they keep their ranks and count as not relevant."
        )
    copies, left_out = run.get("copies", 0), run.get("copies_left_out", False)
    if copies and not left_out:
        yield (
            f"{place}: {copies:,} rows of the run are the query itself and keep their ranks. To leave them out, as "
            "searches here do: --leave-out-copies (in Python: leave_out_copies=True)."
        )
    if left_out and not copies:
        yield f"{place}: no row of the run is the query itself by corpus.self_matches, so none is left out."
    if run["longest"] > depth:
        yield (
            f"{place}: lists of the run reach rank {run['longest']:,}, and are measured to {depth:,}. To measure more: "
            f"--set evaluation.depth={run['longest']} (in Python: depth={run['longest']})."
        )
