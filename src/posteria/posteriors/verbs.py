"""What can be done with a posterior, and who does it. A module is imported when its verb is first used, as the methods
on the shelf are: what every posterior is knows none of them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

VERBS = {
    "calibrate": "posteria.posteriors.calibrated",
    "compress": "posteria.posteriors.compressed",
    "export": "posteria.posteriors.export",
    "prune": "posteria.posteriors.pruned",
    "save": "posteria.posteriors.saving",
    "thin": "posteria.posteriors.thinning",
}


def verb(name: str) -> Callable[..., Any]:
    """The function of this name, in the module above."""
    return getattr(import_module(VERBS[name]), name)
