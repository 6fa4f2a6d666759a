"""Imported by the server that children are forked from, so that none of them has to import it."""

from __future__ import annotations

import gc

import scipy.stats  # noqa: F401
import timm  # noqa: F401
import torch._dynamo
import torch._inductor  # noqa: F401

import proud.bench.queue
import proud.cli.bench
import proud.cli.main
import proud.cli.train
import proud.methods.erm
import proud.methods.proud
import proud.model.predict
import proud.trust  # noqa: F401
import toy  # noqa: F401

gc.collect()
gc.freeze()  # a child that collects garbage need not look at all this
