"""One spelling for every name of a class or a domain."""

from __future__ import annotations

import unicodedata


def nfc(name: str) -> str:
    """Unicode's composed form: files from macOS often have é as two characters, where others have one."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)
