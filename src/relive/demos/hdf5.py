"""HDF5 files: numbers in groups, and nothing else is read.

Datasets of Python objects, strings and opaque bytes are refused, as are links into other files. An
array is asked for only if the file can hold it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.demos.demonstration import wanted
from relive.demos.images import decoded
from relive.errors import CorruptError, MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

MOST_UNSTORED = 1 << 26  # bytes of an array that need not be in the file: zeros are not written
MOST_COMPRESSED = 2048  # bytes that one of the file can become


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The root group of a file."""
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("h5py", extra="demos") from None
    with h5py.File(path, "r") as file:
        yield file


def member(group: Any, name: str) -> Any:
    """A group or dataset by name, inside the file.

    Raises:
        CorruptError: There is none.
        UnsupportedError: It lies in another file.
    """
    link = group.get(name, getlink=True)
    if link is None:
        raise CorruptError(f"{name} is missing")
    if type(link).__name__ == "ExternalLink":
        raise UnsupportedError(f"{name} is a link into another file; copy it into this one")
    return group[name]


def is_group(node: Any) -> bool:
    """Whether a member is a group."""
    return hasattr(node, "keys")


def tree(
    group: Any,
    name: str,
    *,
    keys: frozenset[str] | None = None,
    images: frozenset[str] = frozenset(),
    prefix: str = "",
) -> Any:
    """A dataset as an array, a group as a dict of them.

    Args:
        group: Where it is.
        name: Of the member.
        keys: Dotted names of the datasets to read in a group; None for all.
        images: Those that are pictures in JPEG; "" for the member itself.
        prefix: Of the dotted names.
    """
    node = member(group, name)
    if not is_group(node):
        compressed = prefix in images and node.ndim <= 2
        return pictures(group, name) if compressed else array(group, name)
    found = {}
    for key in node:
        label = key.removeprefix("_index_")  # a tuple's
        dotted = f"{prefix}.{label}" if prefix else label
        if wanted(keys, dotted):
            found[label] = tree(node, key, keys=keys, images=images, prefix=dotted)
    return found


def array(group: Any, name: str) -> NDArray[Any]:
    """A dataset of numbers.

    Raises:
        CorruptError: It is a group, or larger than the file can be.
        UnsupportedError: It holds something else than numbers.
    """
    data = member(group, name)
    if is_group(data):
        raise CorruptError(f"{name} is a group, expected numbers")
    if data.dtype.kind not in "biuf":
        raise UnsupportedError(
            f"{name} has dtype {data.dtype}, expected numbers: Python objects (pickles among them) "
            "and strings are never read, because reading a pickle runs the code in it; write the "
            "values as plain arrays"
        )
    _require_stored(data, name)
    found: NDArray[Any] = np.asarray(data[()])
    return found


def pictures(group: Any, name: str) -> NDArray[np.uint8]:
    """A dataset of pictures, one row of bytes each."""
    data = member(group, name)
    if is_group(data) or not _is_bytes(data.dtype):
        raise CorruptError(f"{name} should hold pictures as bytes")
    _require_stored(data, name)
    return decoded([np.asarray(row, np.uint8).tobytes() for row in data[()]])


def _is_bytes(dtype: Any) -> bool:
    """Whether rows are bytes, all of one length or each of its own."""
    vlen = (dtype.metadata or {}).get("vlen")
    return bool(dtype == np.uint8 or (vlen is not None and np.dtype(vlen) == np.uint8))


def _require_stored(data: Any, name: str) -> None:
    if data.external or data.is_virtual:
        raise UnsupportedError(f"{name} lies in another file; copy it into this one")
    nbytes = data.size * data.dtype.itemsize
    stored = data.id.get_storage_size()
    if nbytes > MOST_UNSTORED and nbytes > stored * MOST_COMPRESSED:
        raise CorruptError(f"{name} is said to have {nbytes} bytes, but the file stores {stored}")
