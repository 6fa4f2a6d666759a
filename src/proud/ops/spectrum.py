"""Style from the amplitude spectrum: Fourier domain adaptation (Yang and Soatto 2020), FACT (Xu et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from proud.ops._shared import per_sample, widen


def amplitude_mix(x: Tensor, style: Tensor, ratio: Tensor) -> Tensor:
    """x with a blend of its amplitudes and those of `style`, phases unchanged. [N,C,S,S], [N,C,S,S], [N] -> [N,C,S,S].

    The spectrum keeps the phase of x; its amplitude becomes `ratio |F(style)| + (1 - ratio) |F(x)|`.
    """
    spectrum, other = torch.fft.rfft2(widen(x)), torch.fft.rfft2(widen(style))
    own = spectrum.abs()
    wanted = torch.lerp(own, other.abs(), per_sample(ratio.to(own.dtype), own))
    gain = wanted / own.clamp_min(torch.finfo(own.dtype).eps)
    return torch.fft.irfft2(spectrum * gain, s=x.shape[-2:]).to(x.dtype)
