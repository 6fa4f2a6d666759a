"""The README's picture of the built-in data set: one row per domain, twice its size.

python benchmarks/embedded_picture.py docs/images/embedded.png
"""

from __future__ import annotations

import sys

from PIL import Image

from proud.data.embedded import contact_sheet

if __name__ == "__main__":
    sheet = contact_sheet()
    sheet.resize((2 * sheet.width, 2 * sheet.height), Image.Resampling.NEAREST).save(sys.argv[1], optimize=True)
