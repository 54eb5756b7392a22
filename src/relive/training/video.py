"""Pictures of an environment as one film, an mp4 that every browser plays (H.264)."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np

from relive.errors import ConfigError, MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIX = ".mp4"
TINY, ENLARGED = 32, 240  # pixels of the longer side: those below the first are enlarged


@final
class Video:
    """A film that is there once it is whole; a context manager.

        with Video("episodes.mp4") as video:
            evaluate(agent, "CartPole-v1", seeds, film=video.take)

    Until then it is written beside, to `episodes.mp4.part`, which goes if the block is left by an
    exception. Needs no window and no display.

    Args:
        path: Of the file, in a folder that exists; nothing may be there.

    Raises:
        ConfigError: Another ending than .mp4, no such folder, or something is there already.
        MissingExtraError: PyAV is not installed.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() != SUFFIX:
            raise ConfigError(f"a video is a file whose name ends in {SUFFIX}; given {self.path}")
        if self.path.exists():
            raise ConfigError(f"{self.path} is there already; remove it, or name another file")
        if not self.path.parent.is_dir():
            raise ConfigError(f"there is no folder {self.path.parent} for the video; make it first")
        self._av = _av()
        self._part = self.path.with_name(self.path.name + ".part")
        self._container: Any = None  # before the first picture
        self._stream: Any = None

    def take(self, picture: NDArray[np.uint8], rate: float) -> None:
        """Adds a picture.

        Args:
            picture: RGB, `[H, W, 3]`; as large as the first one.
            rate: Pictures a second; the first one decides.

        Raises:
            UnsupportedError: No picture of that kind, or one of another size.
        """
        if picture.dtype.kind == "f" and picture.size and 0 <= picture.min() <= picture.max() <= 1:
            picture = np.rint(255 * picture).astype(np.uint8)  # as MinAtar paints
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise UnsupportedError(
                f"a picture is uint8 [height, width, 3]; given {picture.dtype} {[*picture.shape]}"
            )
        side = max(picture.shape[:2])
        if 0 < side < TINY:
            picture = picture.repeat(ENLARGED // side, 0).repeat(ENLARGED // side, 1)
        even = np.pad(picture, ((0, len(picture) % 2), (0, picture.shape[1] % 2), (0, 0)), "edge")
        height, width, _ = even.shape
        if self._container is None:
            self._open(height, width, rate)
        elif (self._stream.height, self._stream.width) != (height, width):
            size = self._stream.height, self._stream.width
            raise UnsupportedError(
                f"pictures of one video have one size; the first had {size}, given {height, width}"
            )
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Writes what is waiting and puts the film in its place; nothing if no picture came."""
        if self._container is not None:
            self._container.mux(self._stream.encode())
            self._container.close()
            self._container = None
            self._part.replace(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        elif self._container is not None:
            self._container.close()
            self._container = None
            self._part.unlink(missing_ok=True)  # FFmpeg makes it with the first bytes

    def _open(self, height: int, width: int, rate: float) -> None:
        options = {"movflags": "faststart"}  # a browser plays it while it comes
        self._container = self._av.open(str(self._part), "w", format="mp4", options=options)
        rate_of_stream = Fraction(rate).limit_denominator(1000)
        self._stream = self._container.add_stream("libx264", rate=rate_of_stream)
        self._stream.height, self._stream.width = height, width
        self._stream.pix_fmt = "yuv420p"  # halves both sides of colours: so even sizes


def _av() -> Any:
    try:
        import av
    except ImportError:
        raise MissingExtraError("PyAV", extra="video") from None
    return av
