"""What new rows have that the rows of the fit had not, in words."""

from posteria.data.encode import Encoded, Encoder

VALUES_SHOWN = 5
AS_WHAT = {"Means": "the average of all rows", "Ordered": "missing"}  # an unseen value of such a column


def told_of(encoded: Encoded, encoder: Encoder | None) -> dict[str, str]:
    """A line by column, the most surprising alone where there are several."""
    taken = {column.name: type(column).__name__ for column in encoder.columns} if encoder else {}
    lines = {}
    for column, count in encoded.filled.items():
        lines[column] = f"{column}: {count:,} missing, as never in the fit; taken as its median"
    for column, (count, first, last) in encoded.far.items():
        lines[column] = f"{column}: {count:,} dates before {first} or after {last}, the range of the fit"
    for column, values in encoded.unseen.items():
        shown = ", ".join(map(repr, values[:VALUES_SHOWN])) + (", ..." if len(values) > VALUES_SHOWN else "")
        count, total = encoded.counts[column], len(encoded.x)
        where = f"in {count:,} of {total:,} rows"
        if taken[column] in ("Number", "Date"):
            lines[column] = f"{column}: {shown} cannot be read as a {taken[column].lower()}; taken as missing, {where}"
        elif taken[column] in AS_WHAT:
            lines[column] = f"{column}: {shown} not seen in the fit; taken as {AS_WHAT[taken[column]]}, {where}"
        else:
            lines[column] = f"{column}: {shown} not seen in the fit, or rarely; taken as none of its values, {where}"
    return lines
