"""Files of tracked runs (per-query values, ranked lists, reports), for readers."""

import os
import tempfile
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from mlflow.artifacts import download_artifacts

from midmask.errors import UserError
from midmask.tracking.failures import FAILURES, unreachable
from midmask.tracking.store import connect


def artifact_file(uri: str, run_id: str, path: str, cache: Path) -> Path | None:
    """An artifact of a finished run as a local file, None if the run has no such artifact.

    Args:
        path: below the run's artifacts, such as `per_query/pydocs.dev.parquet`.
        cache: what lies on another machine is copied below this folder, once.

    Raises:
        UserError: if the store does not answer.
    """
    copy = cache / run_id / path
    if copy.exists():
        return copy
    try:
        client = connect(uri)
        place = client.get_run(run_id).info.artifact_uri
        if (local := _local(place)) is not None:
            return found if (found := local / path).exists() else None
        names = {item.path for item in client.list_artifacts(run_id, str(PurePosixPath(path).parent))}
        return _copy(f"{place}/{path}", copy, uri) if path in names else None
    except FAILURES as error:
        raise UserError(unreachable(uri, error)) from None


def _local(place: str) -> Path | None:
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def _copy(place: str, copy: Path, uri: str) -> Path:
    """The copy appears at once and whole: another page may look for it meanwhile."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=copy.parent) as folder:
        fetched = download_artifacts(artifact_uri=place, dst_path=folder, tracking_uri=uri)
        os.replace(fetched, copy)
    return copy
