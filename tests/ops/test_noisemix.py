"""NoiseMix and its convolutions against the oracle."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import oracle
from proud import ops
from proud.ops.noisemix import _complex_product, _fft_convolution, _fft_size, _real_product, _toeplitz_convolution

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def uniforms(seed: int, n: int, side: int, layers: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    options = {"generator": g, "dtype": torch.float64}
    return (
        torch.rand(2, n, **options),
        torch.rand(layers, 3, **options),
        torch.rand(layers, 3, 3, 15, 15, **options),
        torch.randn(layers, n, 3, side, side, **options),
    )


def numpy_draw(draw: ops.NoiseMixDraw) -> dict[str, np.ndarray]:
    return {field.name: getattr(draw, field.name).numpy() for field in fields(draw)}


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("k", range(1, 16))
def test_framed_kernel_is_the_dilated_same_convolution(k: int, dilation: int) -> None:
    g = torch.Generator().manual_seed(k)
    weights = torch.rand(3, 3, 15, 15, generator=g, dtype=torch.float64) * 2 - 1
    frame = ops.dilated_kernel(weights, torch.tensor(k), torch.tensor(dilation))
    assert frame.shape == (3, 3, 29, 29) and frame.dtype == torch.float64
    expected_kernel = weights[:, :, :k, :k] / (3 * k * k) ** 0.5
    for height, width in ((32, 9), (9, 32), (5, 3)):  # larger and smaller than the frame
        x = torch.randn(2, 3, height, width, generator=g, dtype=torch.float64)
        total = dilation * (k - 1)
        before, after = total // 2, total - total // 2
        expected = F.conv2d(F.pad(x, (before, after, before, after)), expected_kernel, dilation=dilation)
        for convolve in (ops.same_convolution, _toeplitz_convolution, _fft_convolution):
            torch.testing.assert_close(convolve(x, frame), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("k", "dilation"), [(1, 1), (4, 1), (4, 2), (7, 2), (14, 1), (15, 2)])
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_framed_kernel_equals_torch_s_padding_same(k: int, dilation: int) -> None:
    g = torch.Generator().manual_seed(k)
    weights, x = torch.rand(3, 3, 15, 15, generator=g), torch.randn(2, 3, 40, 36, generator=g)
    frame = ops.dilated_kernel(weights, torch.tensor(k), torch.tensor(dilation))
    expected = F.conv2d(x, weights[:, :, :k, :k] / (3 * k * k) ** 0.5, padding="same", dilation=dilation)
    torch.testing.assert_close(ops.same_convolution(x, frame), expected, rtol=0, atol=1e-5)
    for convolve in (_toeplitz_convolution, _fft_convolution):
        small = convolve(x[..., :32, :32], frame)
        torch.testing.assert_close(small, ops.same_convolution(x[..., :32, :32], frame), rtol=0, atol=1e-5)


def test_same_convolution_equals_the_loops() -> None:
    g = torch.Generator().manual_seed(0)
    weights = torch.randn(3, 3, 4, 4, generator=g, dtype=torch.float64)
    x = torch.randn(1, 3, 6, 5, generator=g, dtype=torch.float64)
    frame = ops.dilated_kernel(weights, torch.tensor(4), torch.tensor(2))
    assert frame.shape[-1] == 7
    expected = oracle.dilated_convolution(x[0].numpy(), weights.numpy() / 48**0.5, 2)
    np.testing.assert_allclose(ops.same_convolution(x, frame)[0], expected, atol=1e-12)


def test_same_convolution_keeps_dtype_and_stays_exact_in_half_precision() -> None:
    g = torch.Generator().manual_seed(1)
    x, kernel = torch.randn(2, 3, 20, 20, generator=g).bfloat16(), torch.randn(3, 3, 29, 29, generator=g)
    expected = ops.same_convolution(x.double(), kernel.double())
    got = ops.same_convolution(x, kernel)
    assert got.dtype == torch.bfloat16 and expected.dtype == torch.float64
    torch.testing.assert_close(got, expected.bfloat16(), rtol=0.01, atol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = _toeplitz_convolution(x.float(), kernel)
    torch.testing.assert_close(inside.double(), expected, rtol=0, atol=1e-3)


def test_coarse_factors_cost_the_precision_of_bfloat16_and_no_more() -> None:
    g = torch.Generator().manual_seed(2)
    x, kernel = torch.randn(2, 3, 20, 20, generator=g), torch.randn(3, 3, 29, 29, generator=g) / 50
    exact, coarse = (_toeplitz_convolution(x, kernel, coarse) for coarse in (False, True))
    error = (coarse - exact).abs().max() / exact.abs().max()
    assert coarse.dtype == torch.float32 and 1e-5 < error < 2e-2


def test_both_products_of_spectra_equal_the_sum_over_channels() -> None:
    g = torch.Generator().manual_seed(3)
    spectrum, response = (torch.randn(n, 3, 4, 5, generator=g, dtype=torch.complex128) for n in (2, 3))
    expected = np.einsum("nihw,oihw->nohw", spectrum.numpy(), response.numpy().conj())
    for product in (_complex_product, _real_product):
        np.testing.assert_allclose(product(spectrum, response), expected, rtol=1e-12)


@pytest.mark.parametrize(("least", "size"), [(1, 2), (46, 48), (29, 30), (238, 240), (241, 250), (97, 100)])
def test_fft_sizes_are_even_and_smooth(least: int, size: int) -> None:
    assert _fft_size(least) == size


def test_noise_mix_equals_the_oracle() -> None:
    draw = ops.noise_mix_draw(*uniforms(0, 3, 7), invert_p=0.5, max_kernel=9)
    assert 0 < int(draw.invert_first.sum()) < 3 or 0 < int(draw.invert_last.sum()) < 3
    x = torch.randn(3, 3, 7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got = ops.noise_mix(x, draw, MEAN, STD, sigma=0.04)
    expected = oracle.noise_mix(x.numpy(), numpy_draw(draw), MEAN, STD, 0.04)
    np.testing.assert_allclose(got, expected, atol=1e-9)


def test_noise_mix_survives_constant_images() -> None:
    """A 1 x 1 kernel and no noise leave a grey image constant: nothing to standardise by."""
    sample, layer, weights, noise = uniforms(2, 2, 8)
    layer[:, 0] = 0
    draw = ops.noise_mix_draw(sample, layer, 0 * weights + 0.7, noise)
    assert draw.kernel_size.tolist() == [1, 1, 1]
    x = torch.tensor([0.5, -0.7], dtype=torch.float64)[:, None, None, None].expand(2, 3, 8, 8)
    half = (0.5, 0.5, 0.5)
    expected = oracle.noise_mix(x.numpy(), numpy_draw(draw), half, half, 0.0)
    np.testing.assert_allclose(ops.noise_mix(x, draw, half, half, sigma=0.0), expected, atol=1e-3)
    single = ops.noise_mix(x.float(), draw, half, half, sigma=0.0)
    assert single.dtype == torch.float32 and single.isfinite().all()


def test_noise_mix_returns_normalised_pixels_between_0_and_1() -> None:
    draw = ops.noise_mix_draw(*uniforms(3, 4, 16))
    x = 3 * torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    got = ops.noise_mix(x, draw, torch.tensor(MEAN), torch.tensor(STD))
    pixels = got * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    assert pixels.min() > 0 and pixels.max() < 1
    torch.testing.assert_close(got, ops.noise_mix(x, draw, MEAN, STD))


def test_inverting_twice_the_input_and_the_output() -> None:
    """Without layers NoiseMix is invert, sigmoid, normalise, invert: checked in pixel space."""
    half = (0.5, 0.5, 0.5)
    empty = (torch.zeros(0, 3), torch.zeros(0, 3, 3, 15, 15), torch.zeros(0, 4, 3, 2, 2))
    draw = ops.noise_mix_draw(torch.tensor([[0.1, 0.9, 0.1, 0.9], [0.1, 0.1, 0.9, 0.9]]), *empty)
    pixels = torch.full((4, 3, 2, 2), 0.9)
    got = ops.noise_mix((pixels - 0.5) / 0.5, draw, half, half)[:, 0, 0, 0] * 0.5 + 0.5
    first = torch.tensor([-0.8, 0.8, -0.8, 0.8]).sigmoid()
    torch.testing.assert_close(got, torch.where(torch.tensor([True, True, False, False]), 1 - first, first))


def test_draw_equals_the_oracle_and_stays_in_range_at_the_ends() -> None:
    sample, layer, weights, noise = uniforms(5, 6, 2, layers=4)
    layer[0], layer[1] = 0.0, 1.0
    draw = ops.noise_mix_draw(
        sample, layer, weights, noise, invert_p=0.4, max_kernel=13, max_dilation=3, ratio_range=(0.2, 0.6)
    )
    expected = oracle.noise_mix_draw(sample.numpy(), layer.numpy(), 0.4, 13, 3, 0.2, 0.6)
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(draw, name), values, rtol=1e-12)
    assert draw.kernel_size[:2].tolist() == [1, 13] and draw.dilation[:2].tolist() == [1, 3]
    np.testing.assert_allclose(draw.weights, 2 * weights.numpy() - 1)
    assert draw.kernel_size.dtype == draw.dilation.dtype == torch.int64


def test_a_sliced_draw_augments_its_rows_alike() -> None:
    draw = ops.noise_mix_draw(*uniforms(6, 6, 10), invert_p=0.5)
    x = torch.randn(6, 3, 10, 10, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    rows = slice(2, 5)
    whole = ops.noise_mix(x, draw, MEAN, STD)
    torch.testing.assert_close(ops.noise_mix(x[rows], draw.slice(rows), MEAN, STD), whole[rows])
