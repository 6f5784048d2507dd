"""Folders with a record written last: a step's result is complete when, and only when, its record is there.

A place is a folder, named by a path or by any URI that pyarrow's filesystems know (`file:///…`, `s3://…`). A path is
used where it is. A URI is always reached through pyarrow, and `local()` copies it into this machine's cache; so a
`file:` URI exercises the very code that an object store will.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.fs

from midmask.errors import UserError

log = logging.getLogger(__name__)

RECORD = "record.json"


@dataclass(frozen=True)
class Place:
    """A folder by path or URI. Files are written whole or not at all."""

    uri: str

    @property
    def is_path(self) -> bool:
        return "://" not in self.uri

    @staticmethod
    def named(name: str) -> "Place":
        """The place that a person names: a path is made absolute here, since workers run in other folders."""
        return Place(name if "://" in name else os.path.abspath(os.path.expanduser(name)))

    def __truediv__(self, name: str) -> "Place":
        return Place(f"{self.uri.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.uri

    def _filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        if self.is_path:
            return pyarrow.fs.LocalFileSystem(), str(Path(self.uri).absolute())
        try:
            filesystem, path = pyarrow.fs.FileSystem.from_uri(self.uri)
            return filesystem, str(path)
        except (ValueError, OSError) as error:
            raise UserError(
                f"storage {self.uri!r} cannot be opened: {error}. Give a folder or a URI such as s3://…"
            ) from None

    def exists(self) -> bool:
        filesystem, path = self._filesystem()
        return bool(filesystem.get_file_info(path).type != pyarrow.fs.FileType.NotFound)

    def is_folder(self) -> bool:
        filesystem, path = self._filesystem()
        return bool(filesystem.get_file_info(path).type == pyarrow.fs.FileType.Directory)

    def names(self) -> list[str]:
        """Sorted names of what lies directly inside; empty if the place does not exist."""
        filesystem, path = self._filesystem()
        selector = pyarrow.fs.FileSelector(path, allow_not_found=True)
        return sorted(info.base_name for info in filesystem.get_file_info(selector))

    def read(self) -> bytes:
        filesystem, path = self._filesystem()
        with filesystem.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    @contextlib.contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The file as a seekable binary stream."""
        filesystem, path = self._filesystem()
        with filesystem.open_input_file(path) as stream:
            yield stream

    @contextlib.contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """A stream that becomes this file when the block ends without an error."""
        filesystem, path = self._filesystem()
        filesystem.create_dir(os.path.dirname(path), recursive=True)
        draft = f"{path}.{uuid.uuid4().hex[:8]}.draft"
        try:
            with filesystem.open_output_stream(draft) as stream:
                yield stream
            filesystem.move(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                filesystem.delete_file(draft)
            raise

    def write(self, data: bytes) -> None:
        with self.writing() as stream:
            stream.write(data)

    def read_json(self) -> Any:
        return json.loads(self.read())

    def write_json(self, value: Any) -> None:
        self.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode())

    def digest(self) -> str:
        """16 hexadecimal digits of the SHA-256 of the file's bytes, read in a stream."""
        with self.reading() as stream:
            return hashlib.file_digest(io.BufferedReader(stream), "sha256").hexdigest()[:16]  # type: ignore[type-var]

    def size(self) -> int:
        """Bytes of this file, or of all files below this folder; 0 if there is nothing."""
        filesystem, path = self._filesystem()
        info = filesystem.get_file_info(path)
        if info.type != pyarrow.fs.FileType.Directory:
            return int(info.size or 0)
        selector = pyarrow.fs.FileSelector(path, recursive=True)
        return sum(int(info.size or 0) for info in filesystem.get_file_info(selector))

    def delete(self) -> None:
        """Removes the folder or file and all below it; nothing happens if it is not there."""
        filesystem, path = self._filesystem()
        info = filesystem.get_file_info(path)
        if info.type == pyarrow.fs.FileType.Directory:
            filesystem.delete_dir(path)
        elif info.type == pyarrow.fs.FileType.File:
            filesystem.delete_file(path)

    def upload(self, folder: Path) -> None:
        """Copies a local folder's files, at every depth, to this place."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                target = self / path.relative_to(folder).as_posix()
                with target.writing() as stream, open(path, "rb") as source:
                    shutil.copyfileobj(source, stream, 1 << 20)

    def local(self) -> Path:
        """This folder on the local disk: itself if it is a path, else a copy in this machine's cache.

        Only for finished artifacts, which never change.
        """
        if self.is_path:
            return Path(self.uri)
        target = cache_folder() / hashlib.sha256(self.uri.encode()).hexdigest()[:24]
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as draft:
                filesystem, path = self._filesystem()
                pyarrow.fs.copy_files(path, draft, source_filesystem=filesystem)
                with contextlib.suppress(OSError):  # another process was faster, with the same bytes
                    os.rename(draft, target)
                    os.mkdir(draft)
        return target


def cache_folder() -> Path:
    """Where copies of remote artifacts lie on this machine: MIDMASK_CACHE, else a folder of this user's under the temp
    folder.
    """
    default = Path(tempfile.gettempdir()) / f"midmask-cache-{os.getuid()}"
    return Path(os.environ.get("MIDMASK_CACHE") or default)


@dataclass(frozen=True)
class Artifact:
    """A finished step: its place and its record (step, fingerprint, config, inputs, result)."""

    place: Place
    record: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return str(self.record["fingerprint"])

    @property
    def result(self) -> dict[str, Any]:
        """The step's small results: counts, measures, seconds."""
        return dict(self.record["result"])


def load(place: Place) -> Artifact:
    """A finished artifact.

    Raises:
        UserError: if there is no record, so nothing finished here.
    """
    if not (place / RECORD).exists():
        raise UserError(
            f"{place} is no finished artifact: {RECORD} is missing. Name a folder that a midmask step has written."
        )
    return Artifact(place, (place / RECORD).read_json())


def produce(place: Place, record: dict[str, Any], make: Callable[[Place], dict[str, Any]]) -> Artifact:
    """The artifact at `place`: loaded if finished, else made by `make(place)`, whose result enters the record,
    written last.

    A killed `make` finds its own unfinished files when it is called again. Two processes on one disk wait for each
    other.
    """
    with _alone(place):
        if not (place / RECORD).exists():
            result = make(place)
            (place / RECORD).write_json({**record, "result": result})
    return load(place)


def start_afresh(out: Place) -> None:
    """Deletes what an interrupted call has left, for a step that cannot go on from it."""
    for name in out.names():
        if name != RECORD:
            (out / name).delete()


@contextlib.contextmanager
def _alone(place: Place) -> Iterator[None]:
    """Holds a lock beside a path while a step works there; the kernel lets go of it if the process dies."""
    if not place.is_path:
        yield
        return
    import fcntl

    Path(place.uri).parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place.uri}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("another process is making %s; waiting for it", place)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
