"""The command line. Only what `--help` needs is imported at the top: JAX comes with the command that uses it."""

from posteria.cli import (
    about,
    calibrations,
    comparisons,
    exports,
    fits,
    lists,
    plans,
    predictions,
    prior_pictures,
    publications,
    reports,
    serving,
)
from posteria.cli.app import app, main

__all__ = [
    "about",
    "app",
    "calibrations",
    "comparisons",
    "exports",
    "fits",
    "lists",
    "main",
    "plans",
    "predictions",
    "prior_pictures",
    "publications",
    "reports",
    "serving",
]
