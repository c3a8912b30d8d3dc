"""Sphinx: `make docs` builds the site into docs/_site. Pages with code are executed; the reference is generated."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import executed
import generate

import posteria

project = "Posteria"
author = "The Posteria developers"
copyright = "the Posteria developers"
version = release = posteria.__version__

extensions = ["myst_nb"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
exclude_patterns = ["_site", "jupyter_execute", "**/.ipynb_checkpoints"]
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "Posteria"
html_show_sourcelink = False
html_static_path: list[str] = []

generate.write(Path(__file__).parent, executed.run_all())
