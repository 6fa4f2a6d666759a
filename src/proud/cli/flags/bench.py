"""Flags of `proud bench`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction

from proud.config import Count, Machine, NetSpec, NotNegative, ReadSpec, Switch, WholeNumber, value


@dataclass(frozen=True)
class BenchArguments:
    """Run a whole table: every combination of labeled and test domain × seeds × methods. The same command continues an
    interrupted bench; several may work on one --out at a time."""

    name: Annotated[Positional[str], value("NAME")]
    """digits-dg, pacs, office-home, wbc, rsscn7, embedded, or your own folder or CSV file"""
    root: Annotated[str, value("DIR", "(default: none)")] = ""
    """folder of a named benchmark"""
    methods: Annotated[str, value("NAME,NAME")] = "proud-plus,proud,erm,erm-noisemix"
    """methods to run, all of them before the next combination"""
    seeds: Annotated[str, value("INT,INT")] = "2022,2023,2024"
    """seeds; all combinations of the first seed are run first"""
    combos: Annotated[str, value("all|LABELED:TEST,…")] = "all"
    """which combinations; the remaining domains are unlabeled"""
    minutes: NotNegative = 0.0
    """stop after this time; a run in progress keeps its checkpoint. 0: no limit"""
    out: Annotated[str, value("DIR", "(default: runs/bench-NAME)")] = ""
    """folder for runs, results.jsonl and tables"""
    epochs: Annotated[int, value("INT", "(default: the preset's)")] = 0
    """epochs of the main phase"""
    pretrain_epochs: Annotated[int, value("INT", "(default: the preset's)")] = -1
    """epochs on the labeled domain alone"""
    equal_budget: Annotated[WholeNumber, value("INT", "(default: off)")] = 0
    """give every method the budget of ProUD with this many main epochs, in images passed forward and backward"""
    set: Annotated[UseAppendAction[tuple[str, ...]], value("KEY=VALUE")] = ()
    """any other setting of the methods, as in --set alpha=1.0"""
    reading: ReadSpec = field(default_factory=ReadSpec)
    network: NetSpec = field(default_factory=NetSpec)
    machine: Machine = field(default_factory=Machine)
    eval_every: Count = 5
    """epochs between evaluations; the last five are always evaluated"""
    note: Annotated[str, value("TEXT", "(default: none)")] = ""
    """printed in every table, as in --note "rebuilt, SYN stand-in" """
    parallel: Count = 1
    """runs at the same time on one device, each in its own process; useful for small networks on a large GPU"""
    engine: Literal["here", "ray"] = "here"
    """where runs are executed: on this machine, or on a Ray cluster (pip install 'proud[ray]')"""
    ray_cpus: float = 1.0
    """with --engine ray: CPUs per run"""
    ray_gpus: float = 0.0
    """with --engine ray: GPUs, or a share of one, per run"""
    ray_retries: int = 3
    """with --engine ray: how often a run is restarted when its process or machine dies"""
    table_only: Switch = False
    """run nothing, only make the tables from existing results"""
    results: Annotated[tuple[Path, ...], value("FILE ...", "(default: OUT/results.jsonl)")] = ()
    """with --table-only: results files to read; tables are written to --out or, for a single file, beside it"""
    quiet: Switch = False
    """no live table"""
