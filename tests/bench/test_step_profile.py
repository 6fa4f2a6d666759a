"""benchmarks/step_profile.py: kernels by kind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from step_profile import by_kind, kind_of


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32", "convolution"),
        ("cudnn::bn_fw_tr_1C11_kernel_NCHW", "batch norm"),
        ("nvjet_tst_128x256_64x4", "matrix products"),
        ("triton_red_fused_add_mul_sum_12", "compiled: augmentation, NoiseMix, mixing, losses"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel", "optimizer and weight average"),
        ("at::native::distribution_elementwise_grid_stride_kernel", "random numbers"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("something_else", "other"),
    ],
)
def test_kernels_have_a_kind(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


def test_milliseconds_and_kernels_of_a_step_by_kind() -> None:
    found = [{"name": "gemm_a", "calls": 4, "us": 600.0}, {"name": "gemm_b", "calls": 2, "us": 400.0}]
    found.append({"name": "Memset", "calls": 2, "us": 3000.0})
    copies, products = by_kind(found, 2)
    assert (copies["ms"], copies["kernels"]) == (1.5, 1)
    assert (products["ms"], products["kernels"]) == (0.5, 3)
