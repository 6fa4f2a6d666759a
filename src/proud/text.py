"""Text: spelling of names, safe output, cells of CSV files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

SHOWN_NAMES = 5
MARKUP = re.compile(r"[\\`*_{}\[\]<>|~&@$#!^]|:(?=/)|(?<=www)\.|^[-+=]|(?<=^\d)[.)]", re.IGNORECASE)
# some programs skip blanks and control characters, accept full-width forms, or take ; and line breaks for separators
_FORMULA = r"(?=['\s\x00-\x20\x7f\u200b\ufeff]*[=+\-@＝＋－＠])"
_BEGIN, _BLANK = r"(?<![^;|\t\r\n])", r"(?='*[\t\r\n])"
FORMULA = re.compile(rf"{_BEGIN}{_FORMULA}|\A{_BLANK}")
SAFE_FORMULA = re.compile(rf"{_BEGIN}'{_FORMULA}|\A'{_BLANK}")


def nfc(name: str) -> str:
    """Unicode's composed form: file names from macOS often have é as two code points."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def some(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    rest = f" and {len(every) - SHOWN_NAMES} more" if len(every) > SHOWN_NAMES else ""
    return ", ".join(every[:SHOWN_NAMES]) + rest


def listed(problems: list[str], where: object) -> str:
    """The first few problems of a file, one per line."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    more = [f"  … and {len(problems) - SHOWN_NAMES} more"] if len(problems) > SHOWN_NAMES else []
    return "\n".join([f"{count} in {where}:", *(f"  {text}" for text in problems[:SHOWN_NAMES]), *more])


def one_line(error: object, longest: int = 300) -> str:
    """An error's text on one line, cut to a bounded length."""
    text = " ".join(str(error).split())
    return text if len(text) <= longest else text[:longest] + "…"


def printable(text: str) -> str:
    """Escape control characters and invalid Unicode: file names may hold anything."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    plain = "".join(letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text)
    return valid_utf8(plain)


def in_markdown(text: str, longest: int = 1000) -> str:
    """As plain text on one line: no markup, link, HTML or table cell begins in it."""
    return MARKUP.sub(r"\\\g<0>", printable(one_line(text, longest)))


def valid_utf8(name: str) -> str:
    """File names may be any bytes: those that are not valid text are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def safe_cell(cell: Any) -> Any:
    """Text that a spreadsheet would evaluate as a formula gets an apostrophe before it."""
    return valid_utf8(FORMULA.sub("'", cell)) if isinstance(cell, str) else cell


def plain_cell(text: str) -> str:
    """The inverse of `safe_cell`."""
    return SAFE_FORMULA.sub("", text)


def duration(seconds: float) -> str:
    """`about 40 s`, `about 14 min`, `about 2 h 10 min`, `about 3 days`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if minutes < 100:
        return f"about {minutes} min"
    if minutes < 48 * 60:
        return f"about {minutes // 60} h {minutes % 60 // 10 * 10} min"
    return f"about {round(minutes / 60 / 24)} days"


def file_size(count: float) -> str:
    """In the unit that suits the number: `34 MB`, `1.9 GB`."""
    megabytes = count / 1e6
    return f"{max(1, round(megabytes))} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"
