"""The settings of the documentation site: `python -m sphinx -W docs build/site` builds it.

Nothing is fetched, neither here nor by the reader's browser: mathematics is MathML, and fonts and
scripts are those that the theme brings.
"""

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
os.environ.setdefault("MPLBACKEND", "agg")

from momentous.version import __version__  # noqa: E402

project = "momentous"
author = "The momentous developers"
project_copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_click",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "mathml",
    "modules",
]
exclude_patterns = [
    "_*",
    "gallery",
    "reference/generated/modules-table.md",
    "**/sg_execution_times.rst",
    "sg_execution_times.rst",
]
# A word in single backticks is a link where it names something of ours, and code where not.
default_role = "py:obj"
smartquotes = False  # --option is no dash
suppress_warnings = ["config.cache"]  # the order of the gallery is a function

# Markdown -----------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3

# The reference ------------------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
add_module_names = False
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"

# Doctests -----------------------------------------------------------------------------------------
doctest_test_doctest_blocks = "default"
doctest_global_setup = "import doctest\nimport numpy as np\n"

# The gallery --------------------------------------------------------------------------------------
# Without these packages their examples are shown, and not run.
missing = [name for name in ("optimagic", "ase") if importlib.util.find_spec(name) is None]
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": rf"plot_(?!({'|'.join(missing)})\.py)" if missing else "plot_",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
}

# The pages ----------------------------------------------------------------------------------------
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "momentous"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"], "performance": []},  # wide tables
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
