"""What /openapi.json says of bodies: bounds and examples within which a request is answered, not refused."""

from typing import Any

import numpy as np

from posteria.serve.bodies import ARROW, CSV, JSON, MOST_DRAWS, MOST_LEVELS, MOST_VALUES_DRAWN
from posteria.serve.served import Served
from posteria.tree import Json

LARGEST = 1e15  # of a number in a row, unless training rows had larger: beyond, single precision may not do
LONGEST = 1000  # letters of a text
SHOWN_ROWS = 4  # numbers of rows whose outcomes are spelled out one by one: JSON Schema cannot say "as many as"
LEAST_SHARE = 1e-4


def _refusal(why: str) -> Json:
    words = {name: {"type": "string"} for name in ("error", "wanted", "fix")}
    return {"description": why, "content": {JSON: {"schema": {"type": "object", "properties": words}}}}


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: _refusal("the body ended early"),
    401: _refusal("no token, or another"),
    408: _refusal("the body did not come in time, or the answer took too long"),
    413: _refusal("a body too large, or too many rows"),
    415: _refusal("a body of another type"),
    422: _refusal("rows or settings that cannot be taken, and why"),
    429: _refusal("too many requests at once: try again"),
}


def predict_body(served: Served, example: Json, most_rows: int) -> Json:
    shares: Json = {
        "type": "array",
        "maxItems": MOST_LEVELS,
        "items": {"type": "number", "minimum": LEAST_SHARE, "maximum": 1 - LEAST_SHARE},
        "example": [0.5, 0.9],
    }
    options: Json = {"intervals": shares, "quantiles": shares}
    if served.can_draw:
        most_draws = min(MOST_DRAWS, MOST_VALUES_DRAWN // most_rows)
        options["draws"] = {"type": "integer", "minimum": 0, "maximum": most_draws, "example": 10}
        options["seed"] = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "example": 0}
    schema = {
        "type": "object",
        "properties": {"rows": _rows(served, 1, most_rows)} | options,
        "required": ["rows"],
        "additionalProperties": False,
    }
    content: Json = {JSON: {"schema": schema, "example": example}}
    content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (CSV, ARROW)}
    return {"requestBody": {"required": True, "content": content}}


def outcomes_body(served: Served, example: Json, most_rows: int) -> Json:
    """One outcome for each row."""

    def of(least: int, most: int) -> Json:
        outcomes = {"type": "array", "minItems": least, "maxItems": most, "items": _outcome(served)}
        return {
            "type": "object",
            "properties": {"rows": _rows(served, least, most), "outcomes": outcomes},
            "required": ["rows", "outcomes"],
            "additionalProperties": False,
        }

    schema = {"anyOf": [of(number, number) for number in range(1, SHOWN_ROWS + 1)] + [of(SHOWN_ROWS + 1, most_rows)]}
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema, "example": example}}}}


def _rows(served: Served, least: int, most: int) -> Json:
    return {"type": "array", "minItems": least, "maxItems": most, "items": _row(served)}


def _row(served: Served) -> Json:
    """A row by its columns' names, or as (nested) lists of numbers."""
    columns = served.columns()
    if not columns:
        schema: Json = _number(())
        for size in reversed(served.raw_shape):
            schema = {"type": "array", "minItems": size, "maxItems": size, "items": schema}
        return schema
    named = {column["name"]: _cell(column) for column in columns}
    if served.groups is not None:
        named.setdefault(served.groups, {"type": "string", "maxLength": LONGEST})
    others = {"type": ["string", "number", "boolean", "null"]}  # columns that are not used, and said to be
    return {"type": "object", "properties": named, "required": list(named), "additionalProperties": others}


def _cell(column: Json) -> Json:
    """Of a column; null is a missing value."""
    if column["type"] == "number":
        return _number(column.get("range", ())) | {"type": ["number", "null"], "example": column["example"]}
    if column["type"] == "date":
        return {"type": ["string", "null"], "format": "date", "example": column["example"]}
    told: Json = {"type": ["string", "null"], "maxLength": LONGEST, "example": column["example"]}
    return told | ({"examples": column["levels"][:10]} if column.get("levels") else {})


def _number(seen: Any) -> Json:
    largest = max([LARGEST, *(abs(float(value)) for value in seen if np.isfinite(value))])
    return {"type": "number", "minimum": -largest, "maximum": largest}


def _outcome(served: Served) -> Json:
    if served.is_classes:
        return {"enum": list(served.preparation.class_names)}
    scale = served.preparation.y
    size = 1 if scale is None else np.size(scale.mean)
    return _number(()) if size == 1 else {"type": "array", "minItems": size, "maxItems": size, "items": _number(())}
