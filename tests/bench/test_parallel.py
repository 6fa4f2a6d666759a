"""Runs side by side: the same results as one after another, whatever their neighbours are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from proud.bench.results import read_rows
from proud.bench_cli import BenchArguments, bench, out_folder

Make = Callable[..., BenchArguments]


def weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.parent.name: load_file(path) for path in sorted((folder / "runs").glob("*/model.safetensors"))}


def test_neighbours_change_nothing(arguments: Make, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    for parallel in (1, 3):
        one = arguments(
            methods="proud,erm", out=str(tmp_path / f"bench-{parallel}"), parallel=parallel, threads=1, quiet=True
        )
        assert bench(one) == 0
        folder = out_folder(one)
        found[parallel] = weights(folder)
        keys = [(row["method"], row["labeled"], row["test"]) for row in read_rows(folder / "results.jsonl")]
        assert len(keys) == len(set(keys)) == len(found[parallel])
    assert found[1].keys() == found[3].keys() and len(found[1]) >= 2
    for name, tensors in found[1].items():
        assert all(torch.equal(value, found[3][name][key]) for key, value in tensors.items())
