"""The tables of docs/reliability.md as Markdown, from soak.json; `benchmarks/docs_tables.py` fills them in."""

from __future__ import annotations

from typing import Any


def markdown(header: list[str], rows: list[list[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in (header, ["---"] * len(header), *rows))


def source(part: dict[str, Any]) -> str:
    return (
        f"`{part['command']}`, {part['seconds']} s · commit {part['commit']} · {part['device']}, "
        f"Python {part['versions']['python']}, torch {part['versions']['torch']}\n"
    )


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def faults_table(result: dict[str, Any]) -> str:
    part = result["parts"]["faults"]
    rows = [[cell(row["fault"]), "yes" if row["survived"] else "**no**", cell(row["said"])] for row in part["result"]]
    survived = sum(row["survived"] for row in part["result"])
    total = f"\n{len(rows)} faults tried, {survived} survived. `benchmarks/results/soak.json` · {source(part)}"
    return markdown(["fault", "survived", "what the program said"], rows) + total


def kills_table(result: dict[str, Any]) -> str:
    parts = result["parts"]
    kills, events, queue = (parts[name]["result"] for name in ("kills", "file_events", "bench_queue"))
    rows = [
        ["one run, killed at random moments", f"{kills['kills']}", f"{kills['different']}"],
        ["a short run, killed at every single file operation", f"{events['kills']}", f"{events['different']}"],
        ["the same with power loss", f"{events['power_failures']}", f"{events['different']}"],
        [f"workers of a bench ({queue['jobs']} jobs)", f"{queue['kills']}", f"{queue['different']}"],
    ]
    lines = "".join(f"\n{source(parts[name])}" for name in ("kills", "file_events", "bench_queue"))
    return markdown(["what", "kills", "runs or jobs that ended differently"], rows) + lines


def fuzz_table(result: dict[str, Any]) -> str:
    part = result["parts"]["fuzz"]
    rows = [
        [kind, f"{row['cases']:,}", f"{row['refused']:,}", f"{row['used']:,}", f"{row['slowest_seconds']:.2f}"]
        for kind, row in part["result"].items()
    ]
    header = ["mutated", "cases", "refused in one line", "used", "slowest case, s"]
    return markdown(header, rows) + f"\nNeither crash nor hang nor code run nor write elsewhere. {source(part)}"
