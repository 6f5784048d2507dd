"""Finds faults of a cluster's nodes in the reports of the nodes, with the remedy for each."""

from collections.abc import Iterator, Mapping, Sequence

from midmask.backend.cluster import NodeReport
from midmask.backend.worker_group import is_loopback
from midmask.core.config import ABSENT
from midmask.errors import how_to_install
from midmask.store.checks import FAISS_BUILDS


def faults(reports: Sequence[NodeReport], own: Mapping[str, str]) -> list[list[str]]:
    """The faults of each node, one line per fault.

    Args:
        own: versions of Python and the packages on this machine.
    """
    return [list(_faults(report, len(reports) > 1, own)) for report in reports]


def _faults(report: NodeReport, several: bool, own: Mapping[str, str]) -> Iterator[str]:
    if report.silent:
        yield f"did not answer ({report.silent}); install midmask there, in the same versions"
        return
    yield from _of_versions(report.versions, own)
    if several and is_loopback(report.address):
        yield (
            f"joined as {report.address}, where no other machine reaches it, since its own name resolves to it; start "
            "its Ray with --node-ip-address=ADDRESS"
        )
    yield from _of_gpus(*report.gpus)
    for what, why in (("the store", report.store), ("the tracking server", report.tracking)):
        if why:
            yield f"cannot use {what}: {why}"


def _of_versions(versions: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    theirs = {name: versions.get(name, ABSENT) for name in own if name not in FAISS_BUILDS}
    names = [name for name, version in theirs.items() if version != own[name]]
    if names:
        differences = ", ".join(f"{name} {theirs[name]} ({own[name]} here)" for name in names)
        packages = [
            f"{name}=={own[name]}" for name in names if name not in ("Python", "midmask") and own[name] != ABSENT
        ]
        typed = f": pip install {' '.join(packages)}" if packages else ""
        yield f"has other versions: {differences}; install the same there{typed}"


def _of_gpus(reserved: int, torch: int, faiss: int) -> Iterator[str]:
    if reserved > torch:
        yield f"Ray has {reserved} GPUs there and torch sees {torch}; install a build of torch for CUDA, and its driver"
    if torch and not faiss:
        yield f"its faiss is a build for CPUs; {how_to_install('gpu')} lets it search on the GPU"
