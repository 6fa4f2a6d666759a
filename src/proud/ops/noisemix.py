"""NoiseMix, Algorithm 1 of the supplementary material: random convolutions blended into an image, layer by layer.

Every kernel is embedded in a frame of fixed size, so that no shape depends on the draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from proud.ops._shared import constant, per_channel, per_sample, wide_matmul, widen
from proud.ops.augment import normalize

_LEAST_VARIANCE = 1e-10  # for constant images
_TOEPLITZ_PIXELS = 32 * 32


@dataclass(frozen=True, eq=False)
class NoiseMixDraw:
    """The random part of one NoiseMix of N images: P layers shared by the batch, the rest per image."""

    invert_first: Tensor  # [N] bool
    invert_last: Tensor  # [N] bool
    weights: Tensor  # [P,3,3,m,m] in (-1, 1); a layer uses kernel_size x kernel_size of them
    kernel_size: Tensor  # [P] int64 in 1..m
    dilation: Tensor  # [P] int64
    ratio: Tensor  # [P], lambda_p
    noise: Tensor  # [P,N,3,H,W] standard normal

    def slice(self, rows: slice) -> NoiseMixDraw:
        """The draw of a slice of the images."""
        return replace(
            self,
            invert_first=self.invert_first[rows],
            invert_last=self.invert_last[rows],
            noise=self.noise[:, rows],
        )


def noise_mix_draw(
    uniform_sample: Tensor,
    uniform_layer: Tensor,
    uniform_weights: Tensor,
    noise: Tensor,
    *,
    invert_p: float = 0.2,
    max_kernel: int = 15,
    max_dilation: int = 2,
    ratio_range: tuple[float, float] = (0.1, 0.3),
) -> NoiseMixDraw:
    """Uniform numbers to a draw. [2,N], [P,3] (kernel, dilation, ratio), [P,3,3,m,m], [P,N,3,H,W]."""
    most = constant((max_kernel, max_dilation), uniform_layer)
    kernel, dilation = (1 + uniform_layer[..., :2] * most).minimum(most).long().unbind(-1)
    first, last = (uniform_sample < invert_p).unbind(0)
    low, high = ratio_range
    return NoiseMixDraw(
        invert_first=first,
        invert_last=last,
        weights=2 * uniform_weights - 1,
        kernel_size=kernel,
        dilation=dilation,
        ratio=low + (high - low) * uniform_layer[..., 2],
        noise=noise,
    )


def dilated_kernel(weights: Tensor, kernel_size: Tensor, dilation: Tensor, max_dilation: int = 2) -> Tensor:
    """The k x k corner of the weights scaled to U(-b, b), b = 1/sqrt(3 k^2), dilated and embedded in a frame of zeros.

    [...,C,C,m,m], [...], [...] -> [...,C,C,M,M], M = max_dilation (m - 1) + 1. Positioned so that `same_convolution`
    is the dilated convolution with padding 'same', where even kernels are padded by one more at the end.
    """
    channels, side = weights.shape[-3], weights.shape[-1]
    frame = max_dilation * (side - 1) + 1
    last, spread = kernel_size.unsqueeze(-1) - 1, dilation.unsqueeze(-1)
    begin = (frame - 1) // 2 - spread * last // 2
    step = torch.arange(frame, device=weights.device) - begin
    tap = step.div(spread, rounding_mode="floor").clamp_min(0).minimum(last)
    used = tap * spread == step
    tap = tap[..., None, None, :, None]
    rows = weights.gather(-2, tap.expand(*weights.shape[:-2], frame, side))
    taps = rows.gather(-1, tap.mT.expand(*rows.shape[:-1], frame))
    # square root of the bound at each used row and column: the product is the bound, and zero elsewhere
    root = used * (channels**0.5 * (last + 1).to(weights.dtype)).rsqrt()
    root = root[..., None, None, :, None]
    return taps * root * root.mT


def same_convolution(x: Tensor, kernel: Tensor, coarse: bool = False) -> Tensor:
    """Zero-padded cross-correlation of the same size, for kernels as large as the image. [N,C,H,W], [C,C,M,M].

    `coarse` allows bfloat16 factors with float32 sums: faster on a GPU for small images.
    """
    wide = widen(x)
    if x.is_cuda and x.shape[-2] * x.shape[-1] <= _TOEPLITZ_PIXELS:
        return _toeplitz_convolution(wide, kernel.to(wide.dtype), coarse).to(x.dtype)
    return _fft_convolution(wide, kernel.to(wide.dtype)).to(x.dtype)


def noise_mix(
    x: Tensor,
    draw: NoiseMixDraw,
    mean: Sequence[float] | Tensor = (0.5, 0.5, 0.5),
    std: Sequence[float] | Tensor = (0.5, 0.5, 0.5),
    sigma: float = 0.01,
    coarse: bool = False,
) -> Tensor:
    """Algorithm 1 on normalised images, [N,3,H,W] -> [N,3,H,W]. sigma: standard deviation of the noise."""
    out = widen(x)
    inverted = _inverse_offset(mean, std, out) - out  # 1 - pixel, normalised
    out = torch.where(per_sample(draw.invert_first, out), inverted, out)
    kernels = dilated_kernel(draw.weights.to(out.dtype), draw.kernel_size, draw.dilation)
    for kernel, ratio, noise in zip(kernels, draw.ratio.to(out.dtype), draw.noise, strict=True):
        out = torch.add(out, noise.to(out.dtype), alpha=sigma)
        out = torch.lerp(out, _standardize(same_convolution(out, kernel, coarse).tanh()), ratio)
    pixels = out.sigmoid()
    pixels = torch.where(per_sample(draw.invert_last, pixels), 1 - pixels, pixels)
    return normalize(pixels, mean, std).to(x.dtype)


def _inverse_offset(mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        return (1 - 2 * per_channel(mean, like)) / per_channel(std, like)
    return per_channel([(1 - 2 * m) / s for m, s in zip(mean, std, strict=True)], like)


def _standardize(x: Tensor) -> Tensor:
    """Each image to zero mean and unit standard deviation over all its values. [N,...] -> [N,...]."""
    return F.layer_norm(x, x.shape[1:], eps=_LEAST_VARIANCE)


def _toeplitz_convolution(x: Tensor, kernel: Tensor, coarse: bool = False) -> Tensor:
    """One product with the [CHW,CHW] matrix of the convolution: fast on a GPU for small images."""
    channels, height, width = x.shape[1:]
    side = kernel.shape[-1]
    before, after = (side - 1) // 2, side // 2
    # the frame, padded or cropped to every possible offset of two pixels: H - 1 on both sides of its centre
    taps = F.pad(kernel, (width - 1 - before, width - 1 - after, height - 1 - before, height - 1 - after))
    windows = taps.unfold(2, height, 1).unfold(3, width, 1)  # [out, in, H-1-y, W-1-x, y', x'] at y'-y, x'-x
    size = channels * height * width
    if coarse:
        matrix = windows.bfloat16().permute(1, 4, 5, 0, 2, 3).reshape(size, size)
        return (x.flatten(1).bfloat16() @ matrix).float().view(x.shape).flip(2, 3)
    matrix = windows.permute(1, 4, 5, 0, 2, 3).reshape(size, size)
    return wide_matmul(x.flatten(1), matrix).view(x.shape).flip(2, 3)


def _fft_convolution(x: Tensor, kernel: Tensor) -> Tensor:
    """A product of spectra, padded against wrap-around."""
    height, width = x.shape[-2:]
    side = kernel.shape[-1]
    before, after = (side - 1) // 2, side // 2
    rows, columns = (_fft_size(size + after) for size in (height, width))
    frame = F.pad(kernel, (0, columns - side, 0, rows - side)).roll((-before, -before), (2, 3))
    product = _real_product if x.is_cuda else _complex_product
    out = product(torch.fft.rfft2(x, s=(rows, columns)), torch.fft.rfft2(frame))
    return torch.fft.irfft2(out, s=(rows, columns))[..., :height, :width]


def _complex_product(spectrum: Tensor, response: Tensor) -> Tensor:
    """Σ_in spectrum · conj(response), channel by channel: fast on a CPU. [N,in,h,w], [out,in,h,w] -> [N,out,h,w]."""
    response = response.conj()
    out = spectrum[:, 0:1] * response[:, 0]
    for channel in range(1, spectrum.shape[1]):
        out = torch.addcmul(out, spectrum[:, channel : channel + 1], response[:, channel])
    return out


def _real_product(spectrum: Tensor, response: Tensor) -> Tensor:
    """The same in real arithmetic, which a compiler fuses into one kernel."""
    (a, b), (c, d) = torch.view_as_real(spectrum).unsqueeze(1).unbind(-1), torch.view_as_real(response).unbind(-1)
    return torch.view_as_complex(torch.stack([(a * c + b * d).sum(2), (b * c - a * d).sum(2)], -1))


def _fft_size(least: int) -> int:
    """The next even size without prime factors above 5, for a fast transform."""
    size = least + least % 2
    while not _is_smooth(size):
        size += 2
    return size


def _is_smooth(size: int) -> bool:
    for prime in (2, 3, 5):
        while size % prime == 0:
            size //= prime
    return size == 1
