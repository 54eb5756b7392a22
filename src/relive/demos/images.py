"""Pictures in the bytes of JPEG or PNG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from relive.errors import CorruptError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def decoded(pictures: Sequence[bytes]) -> NDArray[np.uint8]:
    """Pictures of one size: uint8 `[T, height, width]`, with colours `[T, height, width, 3]`.

    Raises:
        CorruptError: One cannot be read, or has another size.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("pillow", extra="demos") from None
    found = []
    for number, content in enumerate(pictures):
        try:
            with Image.open(io.BytesIO(content), formats=["JPEG", "PNG"]) as picture:
                found.append(np.array(picture, dtype=np.uint8))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise CorruptError(f"picture {number} cannot be read: {error}") from None
        if found[-1].shape != found[0].shape:
            raise CorruptError(
                f"picture {number} has shape {found[-1].shape}, the first {found[0].shape}"
            )
    return np.stack(found) if found else np.empty((0,), np.uint8)
