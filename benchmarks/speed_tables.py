"""Tables of docs/internals/speed.md, and the README's line about speed."""

from __future__ import annotations

from table_text import RESULTS, read, source, table


def mark(value: float, bar: float, stretch: float | None) -> str:
    return "stretch met" if stretch is not None and value <= stretch else "met" if value <= bar else "**missed**"


def speed() -> str:
    """Measured speed against its targets."""
    digits, plus, pacs = (read(f"speed-{name}.json") for name in ("digits", "digits-plus", "pacs"))
    wanted: list[tuple[str, float, str, float, float | None]] = [
        ("Digits-DG, one step of `proud`, 512 images", digits["fast"]["step_ms"], "ms", 0.65, 0.5),
        ("one step of `proud-plus`", plus["fast"]["step_ms"], "ms", 0.7, None),
        ("DaPP, 9,600 images × 3 views", digits["fast"]["dapp_ms"], "ms", 15.0, 6.0),
        ("the table, 36 runs × 800 epochs of `proud`", digits["table_minutes"], "min", 25.0, 12.0),
        ("PACS, one step of `proud`, 512 images of 224 px", pacs["fast"]["step_ms"], "ms", 28.0, 24.0),
        ("DaPP, 3,947 images × 3 views", pacs["fast"]["dapp_ms"], "ms", 400.0, 250.0),
    ]
    rows = [
        [
            name,
            f"{value:.2f} {unit}",
            f"≤ {bar:g} {unit}",
            "–" if stretch is None else f"≤ {stretch:g} {unit}",
            mark(value, bar, stretch),
        ]
        for name, value, unit, bar, stretch in wanted
    ]
    words = (
        f"\nThe fast loop is {digits['ratio']:.1f} times as fast as the plain one on Digits-DG and {pacs['ratio']:.2f} "
        "times on PACS.\n"
    )
    header = ["measure", "measured", "target", "stretch target", ""]
    files = {"digits": digits, "digits-plus": plus, "pacs": pacs}
    return table(header, rows) + words + "".join(source(f"speed-{name}.json", found) for name, found in files.items())


def speed_line() -> str:
    """For the README."""
    digits, pacs = (read(f"speed-{name}.json") for name in ("digits", "pacs"))
    return (
        f"Speed on one {digits['device'].removeprefix('cuda: ')}: {pacs['fast']['images_per_s']:,.0f} images a second "
        f"through training at 224 px (PACS, ResNet-18), {digits['fast']['images_per_s']:,.0f} at 32 px; all 36 runs of "
        f"the Digits-DG table in {digits['table_minutes']:.0f} minutes ([speed](docs/internals/speed.md)).\n"
    )


def speed_full() -> str:
    """Loss curves of both loops, and cost by the number of unlabeled domains."""
    digits = read("speed-digits.json")
    same, epochs = digits["equality"], digits["epochs"]
    rows = [
        [str(row["domains"]), str(row["steps"]), f"{row['step_ms']:.3f}", f"{row['epoch_begin_ms']:.1f}"]
        for row in digits["scaling"]
    ]
    text = (
        f"\nLargest relative difference of the losses over {same['steps']} steps, fp32, TF32 off: fast vs plain "
        f"{same['fast_vs_plain']:.1e} (target 1e-3), plain vs plain {same['plain_vs_plain']:.1e}.\n"
        f"\nTensor memory after the second main epoch: {epochs['memory_first_mib']:.1f} MiB; "
        f"{epochs['main_epochs_timed'] - 1} epochs later: {epochs['memory_last_mib']:.1f} MiB.\n"
    )
    return table(["unlabeled domains", "steps per epoch", "ms per step", "ms before an epoch (DaPP)"], rows) + text


def step_profile() -> str:
    """Where the time of a step goes."""
    name = "step-profile.json"
    if not (RESULTS / name).exists():
        return f"Not measured yet: `python benchmarks/step_profile.py --out benchmarks/results/{name}` on a GPU.\n"
    found = read(name)
    kinds = list(dict.fromkeys(kind["kind"] for row in found["rows"] for kind in row["kinds"]))
    rows = []
    for row in found["rows"]:
        shares = {kind["kind"]: f"{kind['ms']:.3f} ({kind['kernels']:.0f})" for kind in row["kinds"]}
        rows.append(
            [f"{row['data']}, `{row['method']}`", f"{row['step_ms']:.2f}", *(shares.get(k, "–") for k in kinds)]
        )
    return table(["milliseconds (kernels)", "step", *kinds], rows) + source(name, found)


def together() -> str:
    """Several runs on one GPU."""
    name = "together.json"
    if not (RESULTS / name).exists():
        return f"Not measured yet: `python benchmarks/together.py --out benchmarks/results/{name}` on a GPU.\n"
    found = read(name)
    alone = next(row["step_ms"] for row in found["rows"] if row["runs"] == 1)
    rows = [
        [row["how"], str(row["runs"]), f"{row['step_ms']:.3f} ms", f"{alone / row['step_ms']:.2f}"]
        for row in found["rows"]
    ]
    words = f"\nDigits-DG, `{found['method']}`; processes with{'' if found['mps'] else 'out'} MPS.\n"
    return (
        table(["how", "runs", "time for a step of one", "times as fast as one run alone"], rows)
        + words
        + source(name, found)
    )


def conventional() -> str:
    """The fast loop against a conventional one."""
    name = "conventional.json"
    if not (RESULTS / name).exists():
        return f"Not measured yet: `python benchmarks/conventional.py --out benchmarks/results/{name}` on a GPU.\n"
    found = read(name)
    rows = []
    for row in found["rows"]:
        theirs, ours = row["conventional"], row["ours"]
        rows.append(
            [
                f"{row['data']}, {row['method']}",
                f"{theirs['epoch_s']:.2f} s",
                f"{ours['epoch_s']:.2f} s",
                f"{theirs['images_per_s']:,.0f}",
                f"{ours['images_per_s']:,.0f}",
                f"{row['ratio']:.1f}",
                f"{ours['decode_s']:.1f} s + {ours['first_epoch_s'] - ours['epoch_s']:.1f} s",
            ]
        )
    header = ["", "an epoch, conventional", "ours", "images/s, conventional", "ours", "ratio"]
    header += ["ours, once: decoding + compiling"]
    words = f"\nBatches of {found['rows'][0]['batch_size']}, {found['workers']} workers per loader.\n"
    return table(header, rows) + words + source(name, found)


def prediction() -> str:
    """Start-up of the command, and prediction on a CPU."""
    name = "prediction.json"
    found = read(name)
    rows = []
    bars = {"proud --help": (0.4, 0.2), "proud predict, 1 image": (4.0, 2.5)}
    for row in found["start_up"]:
        warm, (bar, stretch) = row["warm"], bars[row["command"]]
        cold = f"{row['cold']['wall_s']:.2f} s" if "cold" in row else "–"
        verdict = mark(warm["cpu_s"], bar, stretch)
        times = [f"{warm['wall_s']:.2f} s", f"{warm['cpu_s']:.2f} s", cold]
        rows.append([f"`{row['command']}`", *times, f"≤ {bar:g} s", f"≤ {stretch:g} s", verdict])
    header = ["", "warm", "of that, CPU time", "cold", "target", "stretch target", "CPU time"]
    text = table(header, rows)
    for row in found["prediction"]:
        text += (
            f"\n{row['network']} on a CPU with {found['threads']} threads, decoding included: "
            f"{row['ours_per_cpu_s']:.1f} images per second of CPU time, a plain timm loop "
            f"{row['timm_per_cpu_s']:.1f}: {row['ratio_cpu']:.2f} times as many (target 1.5, stretch target 2.5); by "
            f"wall time {row['ratio_wall']:.2f} times. Largest difference of a probability from one pass in the "
            f"default layout: {row['difference']:.0e}.\n"
        )
    return text + source(name, found)


def cpu_training() -> str:
    """Training steps on a CPU in fp32 and bf16."""
    name = "cpu_training.json"
    found = read(name)
    labels = list(found["rows"][0]["seconds"])
    rows = [
        [row["step"], *(f"{row['seconds'][label]:.2f} s ({row['ratio'][label]:.1f} ×)" for label in labels)]
        for row in found["rows"]
    ]
    method = found["method"]
    words = f"\nCPU time of one step of `{method}`; how much faster than in torch's default layout, in one piece.\n"
    return table(["", *labels], rows) + words + source(name, found)
