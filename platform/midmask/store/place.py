"""A folder or file by path or URI, and the errors of a store that no second try mends: it is full, read-only, or closed
to this user."""

import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.fs
from numpy.typing import NDArray

from midmask.errors import UserError

FULL = {errno.ENOSPC: "free some space there", errno.EDQUOT: "free some space there, or have the quota raised"}
CLOSED = dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable")
CLOSED_BY_STORE = {"ACCESS_DENIED": "allow this user to write", "NO_SUCH_BUCKET": "create the bucket"}
"""What to do about an error that no second try mends, by the system's number or the object store's code."""


@contextlib.contextmanager
def refusing(place: str, remedies: Mapping[int, str]) -> Iterator[None]:
    """Turns these operating system errors, raised while writing to `place`, into a UserError."""
    try:
        yield
    except OSError as error:
        remedy = remedies.get(error.errno or 0)
        if error.errno is None and remedies is CLOSED:
            remedy = next((remedy for code, remedy in CLOSED_BY_STORE.items() if code in str(error)), None)
        if remedy is None:
            raise
        reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
        raise UserError(
            f"cannot write {place}: {reason}. What is finished is kept: {remedy}, or name another "
            "storage (--storage, in Python storage=), and run the same again."
        ) from None


DRAFT = ".draft"
"""Ending of a file that is being written."""

IN_MEMORY = 64 * 2**20
"""Bytes of a file for an object store that are held in memory before they go to the temp folder."""

READ_AT_ONCE = 8 << 20
"""Bytes of a file that are read together, or sent: a request to an object store each."""

WITH_RENAME = ("local", "hdfs", "mock")
"""Filesystems of pyarrow whose rename is atomic; on the others, a file appears when its stream is closed."""


@functools.lru_cache(64)
def _open_filesystem(root: str, process: int) -> tuple[pyarrow.fs.FileSystem, str]:
    """The filesystem of a URI and the path of its root; one for each process, since its threads survive no fork."""
    filesystem, path = pyarrow.fs.FileSystem.from_uri(root)
    return filesystem, str(path)


@dataclass(frozen=True)
class Place:
    """A folder or file by path or URI. Files are written whole or not at all."""

    uri: str
    # of a place in a finished artifact elsewhere: `store.artifact.Digests`, which compares a file with the artifact's
    # record when this process first opens it
    digests: Any = field(default=None, compare=False, repr=False)

    @property
    def is_path(self) -> bool:
        return "://" not in self.uri

    @staticmethod
    def named(name: str) -> "Place":
        """The place that a person names: a path is made absolute here, since workers run in other folders."""
        return Place(name if "://" in name else os.path.abspath(os.path.expanduser(name)))

    def __truediv__(self, name: str) -> "Place":
        options = self.uri[len(self.base) :]
        return replace(self, uri=f"{self.base.rstrip('/')}/{name}{options}")

    def __str__(self) -> str:
        return self.uri

    @property
    def base(self) -> str:
        """The path, or the URI without its options."""
        return self.uri if self.is_path else self.uri.partition("?")[0]

    def filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """The filesystem of pyarrow that opens this place, and its path there."""
        if self.is_path:
            return pyarrow.fs.LocalFileSystem(), str(Path(self.uri).absolute())
        parts = urlsplit(self.uri)
        try:
            root = f"{parts.scheme}://{parts.netloc or '/'}{'?' if parts.query else ''}{parts.query}"
            filesystem, base = _open_filesystem(root, os.getpid())
        except (ValueError, OSError) as error:
            raise UserError(
                f"storage {self.uri!r} cannot be opened: {error}. Give a folder or a URI such as s3://…"
            ) from None
        return filesystem, f"{base.rstrip('/')}{unquote(parts.path)}"

    def _info(self) -> pyarrow.fs.FileInfo:
        filesystem, path = self.filesystem()
        return filesystem.get_file_info(path)

    def exists(self) -> bool:
        return bool(self._info().type != pyarrow.fs.FileType.NotFound)

    def is_folder(self) -> bool:
        return bool(self._info().type == pyarrow.fs.FileType.Directory)

    def names(self) -> list[str]:
        """Sorted names of what lies directly inside; empty if the place does not exist."""
        filesystem, path = self.filesystem()
        selector = pyarrow.fs.FileSelector(path, allow_not_found=True)
        return sorted(info.base_name for info in filesystem.get_file_info(selector))

    def sizes(self) -> dict[str, int]:
        """Bytes of every file below this folder, by relative path; empty if the place does not exist."""
        filesystem, path = self.filesystem()
        infos = filesystem.get_file_info(pyarrow.fs.FileSelector(path, recursive=True, allow_not_found=True))
        files = [info for info in infos if info.type == pyarrow.fs.FileType.File]
        return {info.path[len(path) :].lstrip("/"): int(info.size or 0) for info in sorted(files, key=lambda i: i.path)}

    def read(self) -> bytes:
        with self.reading() as stream:
            return bytes(stream.read())

    @contextlib.contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The file as a seekable binary stream.

        Raises:
            UserError: if the contents are not those that the artifact's record states.
        """
        held = None if self.digests is None else self.digests.check(self)
        if held is not None:
            yield io.BytesIO(held)
            return
        filesystem, path = self.filesystem()
        with filesystem.open_input_file(path) as stream:
            yield stream

    @contextlib.contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """A seekable stream that becomes this file when the block ends without an error, after its bytes are on disk.

        Raises:
            UserError: if the store is full, read-only or closed to this user.
        """
        with refusing(self.uri, FULL), self._write_file() if self.is_path else self._upload() as stream:
            yield stream

    @contextlib.contextmanager
    def _write_file(self) -> Iterator[BinaryIO]:
        path = Path(self.uri).absolute()
        draft = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{DRAFT}")
        with refusing(self.uri, CLOSED):
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = open(draft, "wb")
        try:
            with stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    @contextlib.contextmanager
    def _upload(self) -> Iterator[BinaryIO]:
        """Collects the bytes first: a stream of pyarrow that an error interrupts would still leave a cut file."""
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as spool:
            yield spool  # type: ignore[misc]
            spool.seek(0)
            filesystem, path = self.filesystem()
            renames = filesystem.type_name in WITH_RENAME
            target = f"{path}.{uuid.uuid4().hex[:8]}{DRAFT}" if renames else path
            with refusing(self.uri, CLOSED):
                if renames:
                    filesystem.create_dir(os.path.dirname(path), recursive=True)
                with filesystem.open_output_stream(target, compression=None) as stream:
                    shutil.copyfileobj(spool, stream, READ_AT_ONCE)
            if renames:
                filesystem.move(target, path)

    def copy_from(self, source: "Place") -> None:
        """Copies a file of the same filesystem: a link on a disk, a copy made by the store itself elsewhere."""
        filesystem, path = self.filesystem()
        if filesystem.type_name in WITH_RENAME:
            filesystem.create_dir(os.path.dirname(path), recursive=True)
        try:
            if self.is_path:
                os.link(source.uri, path)
            else:
                filesystem.copy_file(source.filesystem()[1], path)
        except FileNotFoundError:
            raise
        except OSError:  # a disk without links; an object that is too large for a single copy
            with source.reading() as original, self.writing() as stream:
                shutil.copyfileobj(original, stream, READ_AT_ONCE)

    def write(self, data: bytes) -> None:
        with self.writing() as stream:
            stream.write(data)

    def read_json(self) -> Any:
        return json.loads(self.read())

    def write_json(self, value: Any) -> None:
        self.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode())

    def read_array(self) -> NDArray[Any]:
        """An array of NumPy's format."""
        with self.reading() as stream:
            return np.load(stream, allow_pickle=False)  # type: ignore[no-any-return]

    def write_array(self, array: NDArray[Any]) -> None:
        with self.writing() as stream:
            np.save(stream, array)

    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the file's bytes, read in a stream."""
        filesystem, path = self.filesystem()
        with filesystem.open_input_file(path) as stream:
            return hashlib.file_digest(io.BufferedReader(stream, READ_AT_ONCE), "sha256").hexdigest()

    def digest(self) -> str:
        """The first 16 digits of `sha256`."""
        return self.sha256()[:16]

    def size(self) -> int:
        """Bytes of this file, or of all files below this folder; 0 if there is nothing."""
        info = self._info()
        return int(info.size or 0) if info.type == pyarrow.fs.FileType.File else sum(self.sizes().values())

    def delete(self) -> None:
        """Removes the folder or file and all below it; nothing happens if it is not there."""
        filesystem, path = self.filesystem()
        kind = self._info().type
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            if kind == pyarrow.fs.FileType.Directory:
                filesystem.delete_dir(path)
            elif kind == pyarrow.fs.FileType.File:
                filesystem.delete_file(path)

    def upload(self, folder: Path, last: str = "") -> None:
        """Copies a local folder's files, at every depth, to this place.

        Args:
            last: the file that is copied after all others, so that its presence says that they are there.
        """
        files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        for name in sorted(files, key=lambda name: name == last):
            with (self / name).writing() as stream, open(files[name], "rb") as source:
                shutil.copyfileobj(source, stream, 1 << 20)

    def local(self) -> Path:
        """This folder on the local disk: itself if it is a path, else a copy in this machine's cache.

        Of a URI only for folders that never change: those of finished artifacts, or of one attempt.

        Raises:
            UserError: if a file is not what the artifact's record states.
        """
        if self.is_path:
            return Path(self.uri)
        target = cache_folder() / hashlib.sha256(self.uri.encode()).hexdigest()[:24]
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as draft:
                filesystem, path = self.filesystem()
                pyarrow.fs.copy_files(path, draft, source_filesystem=filesystem)
                with contextlib.suppress(OSError):  # another process was faster, with the same bytes
                    os.rename(draft, target)
                    os.mkdir(draft)
        with contextlib.suppress(OSError):
            os.utime(target)  # when the copy was last used: docs/cluster.md has the command that frees old ones
        if self.digests is not None:
            self.digests.check_below(self, target)
        return target


def cache_folder() -> Path:
    """Where copies of remote artifacts lie on this machine: MIDMASK_CACHE, else a folder of this user's under the temp
    folder.
    """
    default = Path(tempfile.gettempdir()) / f"midmask-cache-{os.getuid()}"
    return Path(os.environ.get("MIDMASK_CACHE") or default)
