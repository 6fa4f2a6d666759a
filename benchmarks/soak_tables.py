"""Tables of docs/internals/reliability.md and docs/guide/many-runs.md as Markdown, for `benchmarks/docs_tables.py`."""

from __future__ import annotations

import re
from typing import Any

from table_text import table


def source(part: dict[str, Any]) -> str:
    return (
        f"`{part['command']}`, {part['seconds']} s · commit {part['commit']} · {part['device']}, "
        f"Python {part['versions']['python']}, torch {part['versions']['torch']}\n"
    )


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def faults_table(result: dict[str, Any]) -> str:
    """One row per fault; stops by a signal that end with the same message share one."""
    part = result["parts"]["faults"]
    stops: dict[str, list[re.Match[str]]] = {}
    rows = []
    for row in part["result"]:
        if (stop := STOP.fullmatch(row["fault"])) and row["survived"]:
            said = SECONDS.sub("", row["said"].replace(f"fault-{part['result'].index(row)}", "RUN"))
            stops.setdefault(said, []).append(stop)
        else:
            rows.append([cell(row["fault"]), "yes" if row["survived"] else "**no**", cell(row["said"])])
    for said, found in stops.items():
        signals, phases = (", ".join(dict.fromkeys(stop[part] for stop in found)) for part in (1, 2))
        rows.append([cell(f"{signals} during {phases} ({len(found)} faults)"), "yes", cell(said)])
    tried, survived = len(part["result"]), sum(row["survived"] for row in part["result"])
    total = f"\n{tried} faults tried, {survived} survived. `benchmarks/results/soak.json` · {source(part)}"
    return table(["fault", "survived", "message or outcome"], rows) + total


STOP = re.compile(r"(SIG\w+) during (.*)")
SECONDS = re.compile(r" \([\d.]+ s\)$")

KILLS: dict[str, list[tuple[str, str, str]]] = {  # part → what, key of the kills, key of what ended differently
    "kills": [("one run, killed at random times", "kills", "different")],
    "command_kills": [("commands, killed at random times: {commands}", "kills", "different")],
    "file_events": [
        ("a short run, killed at every file event", "kills", "different"),
        ("the same with power loss", "power_failures", "different"),
    ],
    "bench_queue": [("workers of a bench ({jobs} jobs)", "kills", "different")],
    "ranks": [("one of two or three processes of a distributed run ({epochs} epochs)", "kills", "lost_or_doubled")],
    "ray_workers": [("workers of a bench on Ray ({jobs} jobs)", "kills", "lost_or_doubled")],
}


def kills_table(result: dict[str, Any]) -> str:
    parts = {name: result["parts"][name] for name in KILLS if name in result["parts"]}
    rows = []
    for name, part in parts.items():
        found = part["result"] | {"commands": ", ".join(part["result"].get("by_command", []))}
        rows += [[what.format(**found), f"{found[kills]}", f"{found[bad]}"] for what, kills, bad in KILLS[name]]
    lines = "".join(f"\n{source(part)}" for part in parts.values())
    return table(["target", "kills", "runs or jobs with a different result"], rows) + lines


def damage_table(result: dict[str, Any]) -> str:
    """Syncs left out, writes that fail, bits that are wrong."""
    parts = {name: result["parts"][name] for name in DAMAGE if name in result["parts"]}
    rows = [
        [DAMAGE[name][0].format(**part["result"]), DAMAGE[name][1].format(**part["result"])]
        for name, part in parts.items()
    ]
    lines = "".join(f"\n{source(part)}" for part in parts.values())
    return table(["tried", "found"], rows) + lines


DAMAGE = {  # part → what was tried, and what came of it
    "missing_syncs": (
        "power losses with each of the {syncs} syncs left out in turn",
        "{found} change the outcome and are found; {covered_by_a_later_sync} are covered by a later sync",
    ),
    "failing_writes": (
        "each of {changes} file changes fails once (full disk, input/output error, short write): {cases} cases",
        "{errors} clear errors, {survived} without effect; {not_resumable} not resumable, {different} with another end",
    ),
    "bit_flips": ("single wrong bits in files that a command reads: {flips}", "{unnoticed} unnoticed"),
}


def fuzz_table(result: dict[str, Any]) -> str:
    part = result["parts"]["fuzz"]
    rows = [
        [kind, f"{row['cases']:,}", f"{row['refused']:,}", f"{row['used']:,}", f"{row['slowest_seconds']:.2f}"]
        for kind, row in part["result"].items()
    ]
    header = ["mutated", "cases", "rejected with a message", "accepted", "slowest case, s"]
    return table(header, rows) + f"\nNo crash, hang, code execution or write outside the folder. {source(part)}"


def folders_table(result: dict[str, Any]) -> str:
    parts = {name: result["parts"][name] for name in FOLDERS if name in result["parts"]}
    header = ["commands on damaged folders", "calls", "undamaged answer", "message", "answer of forged files"]
    header += ["silently wrong", "traceback", "hang > 30 s", "> 2 GB"]
    names = ("cases", "the same answer", "refused", "used", "silently wrong", "traceback", "hang", "memory")
    rows = [[FOLDERS[name], *(f"{part['result'][each]:,}" for each in names)] for name, part in parts.items()]
    return table(header, rows) + "".join(f"\n{source(part)}" for part in parts.values())


FOLDERS = {
    "folders": "predict, evaluate, label-next, report, verify, resuming, bench tables",
    "exports_and_servers": "compare, export, serve, review",
}


def planted_table(result: dict[str, Any]) -> str:
    """How many bugs the tests of each package catch, and those that they miss."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in result["rows"]:
        package, _, module = row["file"].rpartition("/")
        parts.setdefault(package or "the package itself", []).append(row | {"module": module})
    rows = []
    for name in sorted(parts):
        modules = ", ".join(f"`{module}`" for module in dict.fromkeys(row["module"] for row in parts[name]))
        missed = "; ".join(row["bug"] for row in parts[name] if not row["caught"])
        rows.append([name, modules, str(len(parts[name])), missed or "none"])
    about = f"`benchmarks/results/planted.json` · `{result['command']}` · {result['device']}"
    total = f"\n{result['planted']} planted, {result['caught']} caught. {about}\n"
    return table(["in", "files", "bugs", "not caught"], rows) + total


def sizes_table(result: dict[str, Any], small: Any) -> str:
    """Each guarantee, its test, and how many cases run where. `small`: tests/reliability/sizes.py."""
    found = {name: part["result"] for name, part in result["parts"].items()}
    faults, fuzz = found["faults"], found["fuzz"]
    in_ci = sum(row["fault"] not in small.SOAK_ONLY for row in faults)
    others = sum(row["cases"] for kind, row in fuzz.items() if kind != "images")
    few = sum(cases for kind, cases in small.FUZZ.items() if kind != "images")
    events = found["file_events"]["kills"] + found["file_events"]["power_failures"]
    more = {name: found.get(name, {}) for name in ("command_kills", "failing_writes", "bit_flips")}
    flips = small.FLIPS + small.HALF_DONE_FLIPS
    rows = [
        [
            "a killed run resumes to the same result",
            "test_kills.py",
            f"{2 * small.KILLS} kills",
            found["kills"]["kills"],
        ],
        ["… killed, or without power, at any file event", "test_kills.py", "all events", events],
        [
            "killed commands",
            "test_commands.py",
            f"{small.COMMAND_KILLS + 2 * small.SERVER_KILLS + 1} kills",
            more["command_kills"].get("kills", "–"),
        ],
        ["writes that fail", "test_writes.py", f"{small.WRITES} cases", more["failing_writes"].get("cases", "–")],
        ["wrong bits are noticed", "test_writes.py", f"{flips} bits", more["bit_flips"].get("flips", "–")],
        ["each bench job is done once", "test_queues.py", f"{small.KILLS} kills", found["bench_queue"]["kills"]],
        ["a lost process of a distributed run", "distributed/test_ranks.py", "1 kill", found["ranks"]["kills"]],
        ["a lost Ray worker", "bench/test_ray_cluster.py", "1 kill, Ctrl-C", found["ray_workers"]["kills"]],
        ["faults end with a message", "test_faults.py", f"{in_ci} faults", len(faults)],
        ["hostile images", "test_fuzz.py", f"{small.FUZZ['images']} mutated", fuzz["images"]["cases"]],
        ["hostile models, checkpoints, tables", "test_fuzz.py", f"{few} mutated", others],
        ["hostile input made by hand", "test_hostile.py", "all cases", "as in CI"],
    ]
    cells = [[*row[:3], f"{row[3]:,}" if isinstance(row[3], int) else row[3]] for row in rows]
    return table(["guarantee", "test", "in CI", "`make soak`"], cells)


def ranks_table(result: dict[str, Any]) -> str:
    """Largest differences from one process, over all compared runs."""
    rows = []
    for precision in ("float64", "float32"):
        for processes in (2, 3):
            some = [row for row in result["rows"] if (row["precision"], row["processes"]) == (precision, processes)]
            labels, other = (
                sum(row.get(key, 0) for row in some) for key in ("pseudo_labels", "pseudo_labels_different")
            )
            loss, weight = (max(row[key] for row in some) for key in ("loss_relative", "weight_absolute"))
            rows.append([f"{processes}", precision, f"{loss:.0e}", f"{weight:.0e}", f"{other} of {labels}"])
    header = ["processes", "precision", "loss difference", "weight difference", "different pseudo-labels"]
    about = f"`benchmarks/results/ranks.json` · `{result['command']}` · commit {result['commit']} · {result['device']}"
    return table(header, rows) + f"\n{about}, torch {result['versions']['torch']}\n"


def large_data_table(result: dict[str, Any]) -> str:
    """Time and memory by the number of images. Start-up: median, fastest and slowest of five."""
    rows = []
    for row in result["rows"]:
        wall, cpu = row["startup_wall_seconds"], row["startup_cpu_seconds"]
        rows.append(
            [
                f"{row['files']:,}",
                f"{row['build_seconds']:.0f} s",
                f"{wall[len(wall) // 2]:.1f} s ({wall[0]:.1f} – {wall[-1]:.1f})",
                f"{cpu[len(cpu) // 2]:.1f} s",
                f"{row['dapp_seconds']:.0f} s",
                f"{row['steps_seconds']:.0f} s",
                f"{row['build_megabytes']:,} MB",
                f"{row['most_megabytes']:,} MB",
                f"{row['cache_megabytes']:,} MB",
            ]
        )
    header = ["images", "cache build", "later start-up", "its CPU time", "one DaPP", "50 steps"]
    header += ["RssAnon, build", "RssAnon, start-up and training", "cache on disk"]
    settings = result["settings"]
    about = (
        f"{settings['model']}, {settings['size']} px, {settings['views']} view, batch {settings['batch']}, one thread"
    )
    versions = result["versions"]
    return table(header, rows) + (
        f"\n{about}. `benchmarks/results/large_data.json` · `{result['command']}` · commit {result['commit']} · "
        f"{result['device']}, Python {versions['python']}, torch {versions['torch']}\n"
    )
