"""The exception that is meant for users (what is wrong, where, and what to do), and the one that a stop raises."""

from __future__ import annotations


class Stopped(Exception):
    """The run was stopped; the last checkpoint is its state."""


class UserError(Exception):
    """Shown by the command line as one message without a traceback."""
