"""The exceptions relive raises; each says what was given, what was expected and what to do.

    ReliveError
    ├── ConfigError        a setting that cannot work               (also a ValueError)
    ├── InputError         a bad argument of a call                 (also a ValueError)
    ├── NotReadyError      nothing can be drawn yet                 (also a RuntimeError)
    ├── UnsupportedError   not available here                       (also a RuntimeError)
    ├── CorruptError       an invariant of the state does not hold  (also a RuntimeError)
    ├── DeviceLostError    a GPU failed, and what was on it is gone (also a RuntimeError)
    └── MissingExtraError  an optional package is missing           (also an ImportError)

They are raised before anything has changed; DeviceLostError when all on the device is lost.
"""

from __future__ import annotations

from contextlib import suppress

LONGEST = 200  # characters of what was given, in a message


def shown(value: object) -> str:
    """A value as an error message shows it: short, and whatever it is."""
    text = f"<{type(value).__name__}>"
    with suppress(Exception):  # huge integers and tensors of rare types cannot be written
        text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


class ReliveError(Exception):
    """Root of every exception that relive raises on purpose."""


class ConfigError(ReliveError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class InputError(ReliveError, ValueError):
    """A bad argument of a call: a shape, a dtype, an id, a batch size."""


class NotReadyError(ReliveError, RuntimeError):
    """There is nothing to draw from yet; `ReplayBuffer.ready` tells beforehand."""


class UnsupportedError(ReliveError, RuntimeError):
    """Something this buffer or this machine does not offer."""


class CorruptError(ReliveError, RuntimeError):
    """`ReplayBuffer.check` found a broken invariant."""


class DeviceLostError(ReliveError, RuntimeError):
    """A GPU failed in a way that leaves nothing on it readable; what was saved is still there."""


class MissingExtraError(ReliveError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'relive[{extra}]'")
