"""Flags of `proud serve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from proud.cli.flags.shared import Device, RunFolder, WithAnswers, WithServer
from proud.config import Count, Switch, value


@dataclass(frozen=True)
class ServeArguments(WithServer, WithAnswers):
    """Answer requests over HTTP: POST an image to /predict, get its class, confidence, prediction set and whether to
    abstain as JSON. The printed address opens a page to try an image."""

    run: RunFolder
    """folder of a finished run"""
    device: Device = "auto"
    """where to compute"""
    port: Annotated[int, value("INT")] = 8321
    """port to listen on; 0: a free one"""
    no_token: Switch = False
    """answer without a token; only on this machine's own address"""
    batch: Count = 32
    """images per pass through the network, at most"""
    queue: Count = 64
    """requests in progress, at most; further ones get a 503"""
    megabytes: Count = 20
    """size of an image file, at most"""
