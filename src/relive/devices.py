"""Devices by name."""

from __future__ import annotations

import torch

from relive.errors import UnsupportedError, shown


def known_device(device: str | torch.device) -> torch.device:
    """A device that this machine has, by its number.

    Raises:
        UnsupportedError: it has not; says which there are.
    """
    known = _named(device)
    if known.type == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            "there is no CUDA device here (or torch was built without CUDA); use device='cpu'"
        )
    if known.type == "cuda" and (known.index or 0) >= torch.cuda.device_count():
        raise UnsupportedError(f"there are {torch.cuda.device_count()} CUDA devices; given {known}")
    return numbered(known)


def known_kind(device: str | torch.device) -> str:
    """Whether a device is a "cpu" or "cuda", which this machine need not have.

    Raises:
        UnsupportedError: it is neither.
    """
    return _named(device).type


def _named(device: str | torch.device) -> torch.device:
    wrong = f"device is 'cpu' or 'cuda[:number]'; given {shown(device)}"
    if not isinstance(device, str | torch.device):
        raise UnsupportedError(wrong)
    try:
        known = torch.device(device)
    except RuntimeError:
        raise UnsupportedError(wrong) from None
    if known.type not in ("cpu", "cuda") or (known.type == "cpu" and known.index):
        raise UnsupportedError(wrong)
    return known


def numbered(device: torch.device | str) -> torch.device:
    """The same device by its number: "cuda" is whichever is current.

    To torch "cuda" is not equal to "cuda:0": a network on one and a buffer on the other would seem
    to be apart.
    """
    if not isinstance(device, torch.device):  # to make one of one takes a microsecond
        device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
