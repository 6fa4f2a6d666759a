"""The one exception that is meant for users: what is wrong, where, and what to do."""

from __future__ import annotations


class UserError(Exception):
    """Shown by the command line as one message without a traceback."""
