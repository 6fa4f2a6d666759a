"""Flags of `proud verify`."""

from __future__ import annotations

from dataclasses import dataclass

from proud.cli.flags.shared import RunFolder


@dataclass(frozen=True)
class VerifyArguments:
    """Compare every file of a run or of a model with the checksums that were written with it. Nothing is changed; the
    exit code is 1 if anything is damaged or missing."""

    run: RunFolder
    """folder of a run, finished or not, or of a model"""
