"""The notes below every table of evaluations: where its queries come from, how much of each text was read.

Also what was found in the run files that ranked lists were read from. Apart from `report`, since that needs scipy.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from midmask.corpora.assemble import describe_missing
from midmask.errors import how_to_set
from midmask.store.artifact import Artifact

TIES = {"midmask": "by document id, as for every other system", "trec_eval": "by document id descending, as trec_eval"}


def _run_note(label: str, done: Artifact) -> str:
    """What was read, and how ties were broken; `label`: the system's name."""
    run = done.result["read"]["run"]
    rows = f"{run['queries']:,} queries and {run['rows']:,} rows"
    return f"{label}: a run file of {rows}, ties {TIES[run['ties']]}."


def _run_warnings(label: str, done: Artifact) -> Iterator[str]:
    """A line for each kind of query, document or row that was not there, or does not count."""
    run, result, depth = done.result["read"]["run"], done.result, done.record["config"]["depth"]
    place = f"{label}, {_place(result)}"
    if lacking := result["without_results"]:
        yield f"Warning: {place}: the run lacks {lacking:,} of the {result['queries']:,} queries; they score 0."
    if more := run["left_out_queries"]:
        yield f"{place}: {more:,} queries of the run are not judged there, or have no text there, and are left out."
    if run["unknown_documents"]:
        yield (
            f"Warning: {place}: unjudged documents of the run that the collection lacks: {run['unknown_documents']:,}; "
            "they keep their ranks and count as not relevant."
        )
    if copies := run.get("copies"):
        yield (
            f"{place}: {copies:,} rows of the run are the query itself and keep their ranks. To leave them out, as "
            "searches here do: awk '$1 != $3' RUN."
        )
    if run["longest"] > depth:
        yield (
            f"{place}: lists of the run reach rank {run['longest']:,}, and are measured to {depth:,}. To measure more: "
            f"--set evaluation.depth={run['longest']}."
        )


MUCH = 0.2
"""Share of cut passages above which a warning is printed."""

NAMED = 8
"""Evaluations that a line names; of more, it has their number."""


def notes(evaluations: Mapping[str, Artifact]) -> str:
    """A line per collection and split with its queries, a line per way of reading texts with the systems that read so,
    a line per run file and one per approximate search with its recall, a line for each rule that left something out of
    what was measured, with its count, and lines of warning for many cut passages, for results that an index did not
    find, and for what a run file lacks or has too much.
    """
    splits = dict.fromkeys(_split_note(done) for done in evaluations.values())
    ways: dict[str, list[str]] = {}
    runs = {label: done for label, done in evaluations.items() if "run" in done.result["read"]}
    for label, done in evaluations.items():
        if label not in runs:
            ways.setdefault(_reading(done.result["read"]), []).append(label)
    recalls = [_recall_note(label, done) for label, done in evaluations.items() if done.result.get("index_recall")]
    warnings = dict.fromkeys(line for label, done in evaluations.items() for line in _warnings(label, done))
    warnings |= dict.fromkeys(line for label, done in runs.items() for line in _run_warnings(label, done))
    read = [f"{'; '.join(labels)}: {way}." for way, labels in ways.items()]
    run_notes = [_run_note(label, done) for label, done in runs.items()]
    return "\n".join([*splits, *read, *run_notes, *recalls, *left_out_notes(evaluations), *warnings])


def left_out_notes(evaluations: Mapping[str, Artifact]) -> list[str]:
    """A line for each rule by which judgements, queries or results are not measured as the files have them, with its
    count; of results, with the labels of the evaluations.
    """
    lines: dict[str, list[str]] = {}
    for label, done in evaluations.items():
        for note in _judgement_notes(done.result):
            lines[note] = []
        if count := done.result.get("self_matches"):
            place = _place(done.result)
            note = f"{place}: {count:,} results that are the query itself are left out (corpus.self_matches)."
            lines.setdefault(note, []).append(label)
    places = {
        note: labels if len(labels) <= NAMED else [f"{len(labels)} evaluations"] for note, labels in lines.items()
    }
    return [f"{'; '.join(labels)}, {note}" if labels else note for note, labels in places.items()]


def _place(result: Mapping[str, Any]) -> str:
    return f"{result['corpus']} {result['split']}"


def _split_note(done: Artifact) -> str:
    result, limit = done.result, done.record["config"].get("max_queries")
    rule = f"split made here, {result['split_rule']}" if result["split_made_here"] else result["split_rule"]
    sampled = ", a fixed sample" if limit is not None and result["queries"] == limit else ""
    return f"{_place(result)}: {result['queries']:,} queries{sampled} ({rule})."


def _judgement_notes(result: Mapping[str, Any]) -> Iterator[str]:
    if missing := result.get("missing_passages"):
        yield f"{_place(result)}: {describe_missing(missing)}."
    if unread := result.get("unread_judgements"):
        kinds = ", ".join(f"{number:,} {why}" for why, number in unread.items())
        yield f"{result['corpus']}: judgements in its files that are not used: {kinds}."
    for name, queries in result.get("not_searched", {}).items():
        yield f"{_place(result)}: {queries:,} queries of the slice {name} are not evaluated and do not count."


def _reading(read: Mapping[str, Any]) -> str:
    """Lengths, cut shares and titles in words."""
    passages, queries = read.get("passages", {}), read.get("queries", {})
    titles = {True: "with titles", False: "without titles"}.get(passages.get("titles"))
    return "; ".join(filter(None, [_side("passages", passages, titles), _side("queries", queries, None)]))


def _side(name: str, read: Mapping[str, Any], more: str | None) -> str | None:
    if not read:
        return None
    length, cut = read.get("length"), read.get("cut_share")
    whole = f"{name} read up to {length} tokens" if length else f"whole {name}"
    return ", ".join(filter(None, [whole, more, None if cut is None else f"{cut:.1%} cut"]))


def _recall_note(label: str, done: Artifact) -> str:
    """The recall of an approximate search against the exact one, as a sentence."""
    recall = dict(done.result["index_recall"])
    queries, at_depth = int(recall.pop("queries")), recall.pop("at_depth")
    shares = [f"{share:.1%} of its best {name.removeprefix('at_')}" for name, share in recall.items()]
    recalls = ", ".join(shares or [f"{at_depth:.1%} of its results"])
    index, place = done.record["config"]["index"], _place(done.result)
    return f"{label}, {place}: against an exact search, {index} finds {recalls} (sample of {queries:,} queries)."


def _warnings(label: str, done: Artifact) -> Iterator[str]:
    """What to do where more than `MUCH` of the passages are cut, or an index found fewer than were asked for."""
    read = done.result["read"].get("passages", {})
    if (read.get("cut_share") or 0) > MUCH:
        field = "evaluation.passage_length" if done.record["config"].get("passage_length") else "tokens.max_length"
        yield (
            f"Warning: {read['cut_share']:.0%} of the passages of {done.result['corpus']} are cut at {read['length']} "
            f"tokens, so their ends are not searched. To read more of them: {how_to_set({field: 2 * read['length']})}."
        )
    if slots := int(done.result.get("empty_slots", 0)):
        yield (
            f"Warning: {label}, {_place(done.result)}: the index left {slots:,} result slots "
            "empty. To search more of it, raise evaluation.nprobe (IVF) or evaluation.ef_search (HNSW)."
        )
