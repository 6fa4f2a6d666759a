"""`proud speed`: arguments, table and JSON file. The measuring itself is in `proud.speed`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from proud.config import Switch, word

DESCRIPTION = "How fast training is here: the plain loop and the fast one in one run, on made-up images of a benchmark."


@dataclass(frozen=True)
class SpeedArguments:
    data: Literal["digits-dg", "pacs", "embedded"] = "embedded"
    """benchmark whose numbers and sizes of images are made up"""
    method: str = "proud"
    """training method"""
    seconds: float = 0.0
    """train for so long as a real run would, to extrapolate the paper's whole table; 0 leaves that out"""
    full: Switch = False
    """also compare the two loops' loss curves and measure 2, 4 and 8 unlabeled domains"""
    device: Annotated[str, word("auto|cpu|cuda|cuda:N")] = "auto"
    """where to compute"""
    threads: Annotated[int, word("INT", "(default: half the cores)")] = 0
    """CPU threads"""
    out: Annotated[str, word("FILE", "(default: runs/speed-<data>-<method>.json)")] = ""
    """JSON file for all numbers, with versions, device and command"""


def speed(arguments: SpeedArguments) -> int:
    from proud.speed import measure
    from proud.files import check_writable, write_json
    from proud.machine import choose_device, choose_threads, environment

    out = Path(arguments.out or f"runs/speed-{arguments.data}-{arguments.method}.json")
    check_writable(out)
    device = choose_device(arguments.device)
    threads = choose_threads(arguments.threads)
    found = measure(arguments.data, arguments.method, device, arguments.seconds, arguments.full)
    found |= environment(device) | {"threads": threads, "command": shlex.join(["proud", *sys.argv[1:]])}
    write_json(out, found)
    show(found, out)
    return 0


def show(found: dict[str, Any], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = (
        f"{found['method']} on {found['data']} (made-up images), batch {found['batch_size']} + {found['batch_size']}"
    )
    table = Table(title=f"{title}, {found['precision']}, {found['device']}", title_justify="left")
    loops = [name for name in ("plain", "fast") if name in found]
    for column in ("", *loops):
        table.add_column(column, justify="left" if not column else "right")
    rows = {
        "step, draws to optimizer": ("step_ms", "{:.2f} ms"),
        "images per second": ("images_per_s", "{:,.0f}"),
        "share of the matmul peak": ("share_of_peak", "{:.1%}"),
        "before each epoch": ("epoch_begin_ms", "{:.1f} ms"),
    }
    if "dapp_ms" in found[loops[0]]:
        rows["of that, pseudo-labels"] = ("dapp_ms", "{:.1f} ms")
    for name, (key, form) in rows.items():
        table.add_row(name, *(form.format(found[loop][key]) for loop in loops))
    console.print(table)
    console.print(f"Matmul peak {found['matmul_peak_tflops']:.2f} TFLOP/s, a step {found['step_gflop']:.1f} GFLOP.")
    if "operations" in found:
        parts = ", ".join(f"{count} {name}" for name, count in found["operations"].items() if name != "all")
        console.print(f"A plain step launches {found['operations']['all']} operations: {parts}.")
    if "ratio" in found:
        console.print(f"The fast loop is {found['ratio']:.1f} times as fast; {found['memory_gib']:.1f} GiB of memory.")
    if "table_minutes" in found:
        console.print(f"The paper's whole table (36 runs) would take {found['table_minutes']:.0f} minutes.")
    if "memory_last_mib" in found.get("epochs", {}):
        first, last = (found["epochs"][f"memory_{when}_mib"] for when in ("first", "last"))
        epochs = found["epochs"]["main_epochs_timed"]
        console.print(
            f"Tensors after the second main epoch: {first:.1f} MiB; {epochs - 1} epochs later: {last:.1f} MiB."
        )
    for row in found.get("scaling", ()):
        console.print(
            f"{row['domains']} unlabeled domains: {row['steps']} steps of {row['step_ms']:.2f} ms an epoch, "
            f"{row['epoch_begin_ms']:.1f} ms before it"
        )
    if "equality" in found:
        same = found["equality"]
        names = {"plain": "itself", "nudged": "itself from weights a rounding away", "fast": "the fast loop"}
        measured = {key: name for key, name in names.items() if f"{key}_vs_plain" in same}
        differences = [f"{name} {same[f'{key}_vs_plain']:.1e}" for key, name in measured.items()]
        console.print(
            f"Loss curve of the plain loop, fp32, {same['steps']} steps, largest relative difference from "
            f"{', '.join(differences)}."
        )
    console.print(f"All numbers: {out}", markup=False, soft_wrap=True)
