"""The site: `make docs` builds it with Sphinx, MyST and Furo. Pages are plain Markdown that GitHub shows, too."""

from __future__ import annotations

import sys
from pathlib import Path

import proud

sys.path.insert(0, str(Path(__file__).parent))

project = "proud"
author = "The proud developers"
project_copyright = author
version = release = proud.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "_extension"]
exclude_patterns = ["_*", "images/README.md"]

# ---- pages

myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 4  # links to headings are checked
myst_dmath_double_inline = True
suppress_warnings = ["myst.header"]  # a page may start with ## below a generated part

# ---- Python

napoleon_numpy_docstring = False
napoleon_preprocess_types = False
autodoc_member_order = "bysource"
autoclass_content = "both"  # and the docstring of the constructor
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "code"  # in docstrings, as in Markdown
python_use_unqualified_type_names = True
nitpick_ignore_regex = [(r"py:class", r"(torch|numpy|pathlib|collections)\..*")]  # documented elsewhere

# ---- looks

html_theme = "furo"
html_title = f"proud {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
