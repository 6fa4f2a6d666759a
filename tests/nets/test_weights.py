"""Initial weights from files of safetensors and of torch.save; nothing in them is executed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from proud.errors import UserError
from proud.nets.weights import load_backbone


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return {key: torch.rand_like(value.float()) for key, value in small().state_dict().items()}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"epoch": 3, "model": {f"module.{key}": value for key, value in state.items()}},
        lambda state: {"model": {"state_dict": {f"_orig_mod.module.{key}": value for key, value in state.items()}}},
        lambda state: state | {"fc.weight": torch.zeros(3, 4)},
    ],
)
def test_files_of_torch_save(wrapped: Callable[[Any], Any], state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    torch.save(wrapped(state), tmp_path / "net.pth")
    save_file(state, tmp_path / "net.safetensors")
    nets = [small(), small()]
    for net, name in zip(nets, ("net.pth", "net.safetensors"), strict=True):
        load_backbone(net, tmp_path / name)
    for key, value in nets[0].state_dict().items():
        assert torch.equal(value, nets[1].state_dict()[key]) and torch.equal(value.float(), state[key].to(value.dtype))


class Harmful:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("harmed"),)


def test_nothing_in_the_file_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in ({"state_dict": Harmful()}, small()):
        torch.save(content, tmp_path / "net.pt")
        with pytest.raises(UserError, match=r"more than tensors and plain values.*net\.state_dict\(\)"):
            load_backbone(small(), tmp_path / "net.pt")
    assert not (tmp_path / "harmed").exists()


def test_a_file_that_would_unpack_to_any_size_is_refused(tmp_path: Path) -> None:
    torch.save(small().state_dict(), tmp_path / "net.pt")
    with ZipFile(tmp_path / "net.pt") as whole, ZipFile(tmp_path / "packed.pt", "w", ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    load_backbone(small(), tmp_path / "net.pt")
    with pytest.raises(UserError, match=r"packed\.pt is compressed"):
        load_backbone(small(), tmp_path / "packed.pt")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(UserError, match=r"text\.pth"):
        load_backbone(small(), tmp_path / "text.pth")
    torch.save({"epoch": 3}, tmp_path / "epoch.pth")
    with pytest.raises(UserError, match="holds no state dict"):
        load_backbone(small(), tmp_path / "epoch.pth")
    torch.save({"0.weight": torch.zeros(9, 9)}, tmp_path / "wrong.pth")
    with pytest.raises(UserError, match=r"does not fit the model: .* missing .* 1 of another shape"):
        load_backbone(small(), tmp_path / "wrong.pth")
