"""A CUDA device that is not there: tensors, streams, events and graphs that run on the processor.

    with pretended() as device:
        x = torch.zeros(3, device="cuda")
        x[1] = float(x[0])
        assert device.waits == ["aten._local_scalar_dense: its result, or how long it is, ..."]
        assert device.inner(x).tolist() == [0, 0, 0]

`tensors` what lies on the device · `device` how operations run · `streams` in which order ·
`memory` what becomes of it · `graphs` capture and replay · `cuda` what `torch.cuda` is meanwhile.

Not there: `backward()`, and resizing in place.
"""

from tests.triton.pretended.cuda import pretended
from tests.triton.pretended.device import Device
from tests.triton.pretended.streams import OrderError

__all__ = ["Device", "OrderError", "pretended"]
