"""What likelihoods and priors share: the sentinel `infer`, and the way of their settings to JSON and back."""

import contextlib
import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Any

from posteria.errors import StoreError
from posteria.tree import Json


class Infer(enum.Enum):
    """The type of `infer`, an enumeration of one so that copies and processes share it."""

    INFER = "infer"

    def __repr__(self) -> str:
        return "infer"


infer = Infer.INFER  # in place of a number: "a parameter with a prior, to be inferred with the weights"


def to_json(obj: Any, known: Mapping[str, Any]) -> Json | None:
    """{"name", "settings"} of a member of `known`; None for any other class, which cannot be written down."""
    name = type(obj).__name__
    if known.get(name) is not type(obj):
        return None
    values = {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}
    return {"name": name, "settings": {k: "infer" if v is infer else v for k, v in values.items()}}


def from_json(stored: Json, known: Mapping[str, Any]) -> Any:
    """The object that `to_json` wrote."""
    with refuse_damage(stored):
        return known[stored["name"]](**{k: infer if v == "infer" else v for k, v in stored["settings"].items()})


@contextlib.contextmanager
def refuse_damage(stored: Any) -> Iterator[None]:
    """Turn what goes wrong while `stored` is read into a StoreError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(
            f"stored settings {stored!r}",
            "a likelihood or prior of Posteria with its settings",
            "the store is damaged or was written by another version",
        ) from error
