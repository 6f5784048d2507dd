"""Pickles of numbers and texts, read without running anything in them, in memory that grows with the file.

A pickle names functions and calls them; here every name is looked up in a table of four stand-ins that only rearrange
bytes, and any other name ends the reading. Not even numpy's own functions for pickles are called. What comes out is
made of numbers, texts, lists, tuples, dictionaries and arrays of numbers or texts.

The reader is Python's own one in Python: that in C makes a table as long as the largest number of a memo that a file
states (4 GB for a file of 7 bytes). It takes some 0.7 µs for each pair of a published file.
"""

import io
import pickle
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.retrieve.lines import unpack

EXPANSION = 1_032
"""Bytes that a byte of a gzip stream can become at most."""

_TYPES = re.compile(r"[fiu][1248]|U\d{1,4}")


def read_pickle(place: Place) -> Any:
    """The contents of a pickle, gzip'd or not; an array is a `PickledArray`.

    Raises:
        UserError: if it holds anything but plain data, or is none.
    """
    if not place.exists():
        raise UserError(f"{place}: there is no such file")
    if place.is_folder():
        raise UserError(f"{place}: a folder; name a file in it")
    with place.reading() as stream:
        try:
            return _Reader(_Bounded(unpack(stream), EXPANSION * place.size())).load()
        except Exception as error:  # a broken pickle can raise anything at all, and runs nothing of ours or others'
            raise UserError(
                f"{place}: not a pickle of plain numbers and texts ({type(error).__name__}: "
                f"{str(error).partition(chr(10))[0][:120]}). Save its arrays with numpy.save, its ids one a line."
            ) from None


class PickledArray:
    """An array as it comes out of a pickle: made empty, filled once."""

    def __init__(self, values: NDArray[Any] | None) -> None:
        self._values = values

    def __setstate__(self, state: tuple[int, tuple[int, ...], "_Type", bool, bytes]) -> None:
        _, shape, kind, by_columns, data = state
        self._values = _array(data, kind, shape, "F" if by_columns else "C")

    @property
    def values(self) -> NDArray[Any]:
        if self._values is None:
            raise ValueError("an array without contents")
        return self._values


class _Type:
    """An element type as numpy writes it: a letter and bytes, and in its state the order of bytes."""

    def __init__(self, code: str, *_: object) -> None:
        if not _TYPES.fullmatch(code):
            _refuse(f"elements of type {code!r}")
        self.code, self.order = code, "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            _refuse(f"a byte order {state[1]!r}")
        self.order = state[1]


@dataclass(frozen=True, slots=True)
class _Call:
    """A function that a pickle may call, and nothing else may be done to."""

    function: Callable[..., object]

    def __call__(self, *inputs: object) -> object:
        return self.function(*inputs)

    def __setstate__(self, state: object) -> None:
        _refuse("a state for a function")


def _array(data: object, kind: _Type, shape: tuple[int, ...], layout: str) -> NDArray[Any]:
    if not isinstance(data, bytes | bytearray) or not isinstance(kind, _Type) or layout not in ("C", "F"):
        _refuse("an array that is not made of bytes")
    flat = np.frombuffer(bytes(data), dtype=np.dtype(kind.order + kind.code))
    return flat.reshape(tuple(shape), order="F" if layout == "F" else "C")


def _from_buffer(data: object, kind: _Type, shape: tuple[int, ...], layout: str, *_: object) -> PickledArray:
    return PickledArray(_array(data, kind, shape, layout))


def _scalar(kind: _Type, data: object) -> object:
    return _array(data, kind, (1,), "C").item()


def _encode(text: str, encoding: str) -> bytes:
    """Protocols before 3 have no bytes, and write them as a text to be encoded."""
    if not isinstance(text, str) or encoding != "latin1":
        _refuse(f"a text in {encoding!r}")
    return text.encode("latin1")


def _refuse(what: str) -> NoReturn:
    raise pickle.UnpicklingError(what)


_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): lambda *_: _refuse("an array made by itself"),  # only ever an argument
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
}
for _package in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _KNOWN[f"{_package}.multiarray", "_reconstruct"] = lambda *_: PickledArray(None)
    _KNOWN[f"{_package}.multiarray", "scalar"] = _scalar
    _KNOWN[f"{_package}.numeric", "_frombuffer"] = _from_buffer


class _Bounded:
    """A stream that does not even try to read more bytes at once than the file can hold."""

    def __init__(self, stream: io.BufferedReader, most: int) -> None:
        self._stream, self._most = stream, most
        self.readline = stream.readline

    def read(self, size: int) -> bytes:
        if size > self._most:
            raise EOFError(f"{size} bytes are announced, and the file has at most {self._most}")
        return self._stream.read(size)

    def readinto(self, buffer: memoryview) -> int:
        return self._stream.readinto(buffer)


class _Reader(pickle._Unpickler):
    """Names are looked up in `_KNOWN`."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _KNOWN:
            _refuse(f"it asks for {module}.{name}")
        return _Call(_KNOWN[module, name])


def _read_bytearray(reader: Any) -> None:
    """As the standard library does, but for the room, which it takes before it reads."""
    (size,) = struct.unpack("<Q", reader.read(8))
    reader.append(bytearray(reader.read(size)))


def _with_plain_keys(read: Callable[[Any], None], keys: Callable[[list[Any]], list[Any]]) -> Callable[[Any], None]:
    """An instruction that fills a dictionary, for keys that are no collections: to hash tuples inside of tuples deep
    enough would end the process.

    Args:
        keys: of the reader's stack.
    """

    def check_keys_and_read(reader: Any) -> None:
        for key in keys(reader.stack):
            if not isinstance(key, str | int | float | bytes):
                _refuse(f"a {type(key).__name__} as a key")
        read(reader)

    return check_keys_and_read


_Reader.dispatch = {
    **pickle._Unpickler.dispatch,
    pickle.BYTEARRAY8[0]: _read_bytearray,
    pickle.SETITEM[0]: _with_plain_keys(pickle._Unpickler.dispatch[pickle.SETITEM[0]], lambda stack: stack[-2:-1]),
    pickle.SETITEMS[0]: _with_plain_keys(pickle._Unpickler.dispatch[pickle.SETITEMS[0]], lambda stack: stack[::2]),
    pickle.DICT[0]: _with_plain_keys(pickle._Unpickler.dispatch[pickle.DICT[0]], lambda stack: stack[::2]),
}
for _opcode in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET):
    del _Reader.dispatch[_opcode[0]]
