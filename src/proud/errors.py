"""The exception that is meant for users (what is wrong, where, and what to do), and the one that a stop raises."""

from __future__ import annotations


class Stopped(Exception):
    """The run was stopped; the last checkpoint is its state."""


class UserError(Exception):
    """The input or a setting cannot be used; the message says what is wrong, where, and what to do.

    The command line shows it without a traceback.
    """
