"""What torch, Triton and CUDA say where something fails, and what can be done then."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from relive.gpu.failures import LAUNCH_NOTE, is_of_gpu, loses_the_device, spares_the_device

SEARCH = (
    "\nSearch for `{}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
    "for more information.\nCUDA kernel errors might be asynchronously reported at some other API "
    "call, so the stacktrace below might be incorrect.\nFor debugging consider passing "
    "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
FRAMES = (  # with TORCH_SHOW_CPP_STACKTRACES=1
    "Exception raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:44 "
    "(most recent call first):\nframe #5: at::cuda::CUDAGraph::capture_end() + 0x1a\n"
)
SPARES = {
    "torch's allocator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    "memory": torch.AcceleratorError(
        "CUDA error: out of memory" + SEARCH.format("cudaErrorMemoryAllocation")
    ),
    "memory, by the driver": RuntimeError("CUDA driver error: out of memory"),
    "memory, by Triton": RuntimeError("Triton Error [CUDA]: out of memory"),
    "resources": torch.AcceleratorError(
        "CUDA error: too many resources requested for launch"
        + SEARCH.format("cudaErrorLaunchOutOfResources")
    ),
    "an image": RuntimeError("Triton Error [CUDA]: device kernel image is invalid"),
    "a name": RuntimeError("Triton Error [CUDA]: named symbol not found"),
    "PTX": RuntimeError("Triton Error [CUDA]: a PTX JIT compilation failed"),
    "memory of cuBLAS": RuntimeError(
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    ),
    "a beginning of cuBLAS": RuntimeError(
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    ),
    "memory of cuDNN": RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "no engine of cuDNN": RuntimeError(
        "GET was unable to find an engine to execute this computation"
    ),
    "capture": torch.AcceleratorError(
        "CUDA error: operation not permitted when stream is capturing"
        + SEARCH.format("cudaErrorStreamCaptureUnsupported")
    ),
}
LOSES = {
    "an address": "CUDA error: an illegal memory access was encountered"
    + SEARCH.format("cudaErrorIllegalAddress"),
    "an address, with frames": "CUDA error: an illegal memory access was encountered"
    + SEARCH.format("cudaErrorIllegalAddress")
    + FRAMES,
    "an assertion": "CUDA error: device-side assert triggered" + SEARCH.format("cudaErrorAssert"),
    "a launch": "CUDA error: unspecified launch failure" + SEARCH.format("cudaErrorLaunchFailure"),
    "alignment": "Triton Error [CUDA]: misaligned address",
    "memory that is broken": "CUDA error: uncorrectable ECC error encountered",
    "cuBLAS": "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`",
    "cuDNN": "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
}
NEITHER = {
    "a shape": RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
    "a value": ValueError("out of memory"),
    "a default stream": RuntimeError("CUDA graphs must be captured on a non-default stream."),
}


@pytest.mark.parametrize("what", SPARES)
def test_the_device_can_be_used_after(what: str) -> None:
    error = SPARES[what]
    assert (spares_the_device(error), loses_the_device(error)) == (True, False)


@pytest.mark.parametrize("kind", [torch.AcceleratorError, RuntimeError])
@pytest.mark.parametrize("what", LOSES)
def test_the_device_is_lost(what: str, kind: type[RuntimeError]) -> None:
    error = kind(LOSES[what])
    assert (spares_the_device(error), loses_the_device(error)) == (False, True)


@pytest.mark.parametrize("what", NEITHER)
def test_it_is_not_of_a_device(what: str) -> None:
    assert not is_of_gpu(NEITHER[what])


def test_a_kernel_that_was_not_started_is_told_by_its_note_unless_the_device_is_lost() -> None:
    compiled, lost = Exception("at 3:4: unsupported"), RuntimeError(LOSES["alignment"])
    for error in (compiled, lost):
        error.add_note(f"{LAUNCH_NOTE}fill_batch")
    assert spares_the_device(compiled)
    assert not spares_the_device(lost)


def test_what_an_error_was_raised_from_counts() -> None:
    for cause, is_lost in ((SPARES["memory"], False), (RuntimeError(LOSES["cuBLAS"]), True)):
        error = RuntimeError("the step failed")
        error.__cause__ = cause
        assert (spares_the_device(error), loses_the_device(error)) == (not is_lost, is_lost)


AT_THE_END = """
from relive.gpu.failures import keep

class OnGpu:
    def __del__(self):
        print("was let go of")

held = OnGpu()
"""


@pytest.mark.parametrize(("how", "said"), [("", "was let go of\n"), ("keep(held)", "")])
def test_what_is_kept_is_not_let_go_of_at_the_end_of_the_process_either(
    how: str, said: str
) -> None:
    command = [sys.executable, "-c", AT_THE_END + how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == said
