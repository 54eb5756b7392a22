"""What CUDA, cuBLAS, cuDNN and Triton say, and whether a GPU can be read afterwards."""

import pytest

from relive.gpu.failures import is_of_gpu, loses_the_device, spares_the_device

SPARED = (
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "CUDA error: too many resources requested for launch",
    "CUDA error: no kernel image is available for execution on the device",
    "Triton Error [CUDA]: device kernel image is invalid",
    "Triton Error [CUDA]: named symbol not found",
)
LOST = (
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
)
NOT_OF_A_GPU = ("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", "out of range")


@pytest.mark.parametrize("message", SPARED)
def test_a_failure_of_memory_or_launch_leaves_a_gpu_readable(message):
    assert spares_the_device(RuntimeError(message))
    assert not loses_the_device(RuntimeError(message))


@pytest.mark.parametrize("message", LOST)
def test_a_failure_of_work_under_way_takes_the_gpu_with_it(message):
    assert loses_the_device(RuntimeError(message))
    assert not spares_the_device(RuntimeError(message))


@pytest.mark.parametrize("message", NOT_OF_A_GPU)
def test_other_errors_are_not_of_a_gpu(message):
    assert not is_of_gpu(RuntimeError(message))
