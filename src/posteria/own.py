"""Code of the user's own, named as "mypkg.nets:build".

Only a user may name it, in Python or on the command line; a name that stands in a file is never imported.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from posteria.errors import SettingError

_is_sought_here = False


def seek_here() -> None:
    """For a command line: what is not installed is then sought in the current folder, once a user names it."""
    global _is_sought_here
    _is_sought_here = True


def imported(word: str, what: str) -> Any:
    """What `word` names; `what` it is, for the message."""
    module, _, attribute = word.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise SettingError(f"{what} {word!r}", "module:name, as mypkg.nets:build", "write a module, not a file")
    try:
        if _is_sought_here and "" not in sys.path and find_spec(module.partition(".")[0]) is None:
            sys.path.append("")  # behind all that is installed: no file here takes the place of another module
        return getattr(import_module(module), attribute)
    except Exception as error:  # whatever the user's module does
        raise SettingError(
            f"{what} {word} cannot be imported ({type(error).__name__}: {error})",
            "module:name of your own",
            "run where that module can be imported",
        ) from error
