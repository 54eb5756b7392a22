"""Tables of Arrow and Parquet files: columns of numbers, lists of them, and structs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relive.demos.demonstration import wanted
from relive.demos.images import decoded
from relive.errors import CorruptError, MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", extra="demos") from None
    return pa


def table_of(path: Path) -> Any:
    """All of a file, checked; the end of its name tells Arrow's format of files or Parquet."""
    pyarrow = _pyarrow()
    if path.suffix == ".parquet":
        table = pyarrow.parquet.ParquetFile(path).read()
    else:
        with pyarrow.OSFile(str(path), "rb") as file:
            table = pyarrow.ipc.open_file(file).read_all()
    table.validate(full=True)  # offsets that point elsewhere are found here
    return table


def num_rows(path: Path) -> int:
    """Rows of a Parquet file, as its end tells."""
    return int(_pyarrow().parquet.read_metadata(path).num_rows)


def column(table: Any, name: str) -> Any:
    """A column as one array.

    Raises:
        CorruptError: There is none of that name, or more than one.
    """
    if table.column_names.count(name) != 1:
        raise CorruptError(
            f"there should be one column {name}; there are {', '.join(table.column_names)}"
        )
    chunks = table[name].combine_chunks()
    if type(chunks).__name__ == "ChunkedArray":  # an older pyarrow, or no chunk at all
        chunks = _pyarrow().concat_arrays(chunks.chunks)
    return chunks


def tree(
    values: Any,
    name: str,
    *,
    keys: frozenset[str] | None = None,
    images: frozenset[str] = frozenset(),
    prefix: str = "",
) -> Any:
    """A column as an array, a struct as a dict of them; arguments as `hdf5.tree`."""
    types = _pyarrow().types
    if prefix in images and not types.is_fixed_size_list(values.type):
        return pictures(values, name)
    if not types.is_struct(values.type):
        return array(values, name)
    found = {}
    for field in values.type:
        dotted = f"{prefix}.{field.name}" if prefix else field.name
        if wanted(keys, dotted):
            inner = values.field(field.name)
            found[field.name] = tree(inner, dotted, keys=keys, images=images, prefix=dotted)
    return found


def array(values: Any, name: str) -> NDArray[Any]:
    """A column of numbers, or of lists of equal length: `[T, ...]`.

    Raises:
        CorruptError: Values that are missing, or lists of several lengths.
        UnsupportedError: Something else than numbers.
    """
    types, rows = _pyarrow().types, len(values)
    values = getattr(values, "storage", values)  # of an extension type
    if values.null_count:
        raise CorruptError(f"{name}: {values.null_count} values are missing")
    if types.is_fixed_size_list(values.type) or types.is_list(values.type):
        inner = array(values.flatten(), name)
        width = len(inner) // rows if rows else 0
        if not types.is_fixed_size_list(values.type):
            sizes = np.diff(values.offsets.to_numpy())
            if rows and (sizes != width).any():
                raise CorruptError(f"{name}: lists of several lengths")
        return inner.reshape(rows, width, *inner.shape[1:])
    numbers = types.is_integer(values.type) or types.is_floating(values.type)
    if not numbers and not types.is_boolean(values.type):
        raise UnsupportedError(
            f"{name} has type {values.type}, expected numbers: Python objects (pickles among them) "
            "and strings are never read; write the values as plain arrays"
        )
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def pictures(values: Any, name: str) -> NDArray[np.uint8]:
    """A column of pictures: of their bytes, or of structs with a field `bytes`.

    Raises:
        UnsupportedError: They lie in files of their own.
    """
    types = _pyarrow().types
    if types.is_struct(values.type):
        values = values.field("bytes")
    if not (types.is_binary(values.type) or types.is_large_binary(values.type)):
        raise CorruptError(f"{name} has type {values.type}, expected the bytes of pictures")
    if values.null_count:
        raise UnsupportedError(f"{name}: pictures in files of their own are not read")
    return decoded(values.to_pylist())
