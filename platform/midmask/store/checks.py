"""Checks of the machine that a process runs on: versions of installed packages, and access to a store."""

import platform
import uuid

from midmask.core.config import library_versions
from midmask.core.redaction import redacted
from midmask.errors import UserError
from midmask.store.place import Place

FAISS_BUILDS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12", "faiss-gpu-cuvs")
"""Packages of which a machine has one."""

PACKAGES = ("midmask", "torch", "transformers", "ray", "mlflow", "optuna", "pyarrow", *FAISS_BUILDS)


def own_versions() -> dict[str, str]:
    """Versions of Python and `PACKAGES`; `ABSENT` for what is not installed here."""
    return {"Python": platform.python_version(), **library_versions(PACKAGES)}


def why_not_writable(storage: Place) -> str:
    """Why a store cannot be written to, read and deleted from; empty if it can."""
    probe = storage / f"check-{uuid.uuid4().hex}"
    try:
        probe.write(b"midmask doctor")
        same = probe.read() == b"midmask doctor"
        probe.delete()
    except (OSError, UserError) as error:
        return redacted(" ".join(str(error).split()))[:300]
    return "" if same else f"{redacted(probe.uri)} came back with another content"
