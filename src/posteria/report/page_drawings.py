"""What each picture of the report shows: functions that draw on axes and return the alternative text."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.comparison.tell.results import LEVELS
from posteria.plots import calibration, entropy, mixing, outcomes, panels, side_by_side, training_curves
from posteria.report import phrases
from posteria.report.reading import Problem, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = {"training": "trained on", "validation": "held out", "objective": "objective"}
LEVEL = 0.9  # of the intervals whose coverage is looked at by spread
MOST_FUNCTIONS = 8  # drawn in a panel
FEWEST_EPOCHS = 3  # that make a curve


# ---- for all rows together


def cost_and_distance(axes: "Axes", rows: list[Row], problem: Problem) -> str | None:
    distance, cost = phrases.distance_column(problem), phrases.cost_column(problem)
    if distance is None or cost is None:
        return None
    points = []
    for row in rows:
        x, y = row.score(cost["key"]), row.score(distance["key"])
        if row.role != "reference" and x and y is not None:
            error = row.facts["scores"][distance["key"]]["se"] or 0.0
            points.append(side_by_side.Point(row.label, row.style, x, y, error))
    if not points:
        return None
    ceiling = problem.facts["reference"]["ceiling"].get(distance["key"])
    side_by_side.cost_against_distance(axes, points, phrases.with_unit(cost), phrases.with_unit(distance), ceiling)
    nearest = sorted(points, key=lambda point: point.y)
    return f"{distance['title']} against {cost['title'].lower()}, nearest to the reference first: " + "; ".join(
        f"{point.label} {phrases.number(point.y, 3)} for {phrases.number(point.x, 2)} {cost['unit']}".rstrip()
        for point in nearest
    )


def rejection(axes: "Axes", rows: list[Row], problem: Problem) -> str:
    series = []
    for row in rows:
        y = row.arrays["y"]
        if problem.is_regression:
            error, spread = (row.arrays["mean"] - y) ** 2, row.arrays["std"]
        else:
            error, spread = (row.arrays["probs"].argmax(1) != y).astype(float), row.arrays["entropy"]
        x, values = side_by_side.error_by_rejection(error.ravel(), spread.ravel(), root=problem.is_regression)
        series.append(side_by_side.Series(row.label, row.style, x, values))
    what = "RMSE" if problem.is_regression else "error rate"
    side_by_side.lines(axes, series, "fraction rejected, most uncertain first", f"{what} of the rows kept")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    if not problem.is_regression:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    halves = [(one.label, one.y[0], np.interp(0.5, one.x, one.y)) for one in series]
    return f"{what} with all rows, and with the more uncertain half rejected: " + "; ".join(
        f"{label} {phrases.number(all_rows, 3)} to {phrases.number(half, 3)}" for label, all_rows, half in halves
    )


def quality_by_draws(axes: "Axes", rows: list[Row], problem: Problem) -> str:
    series = [side_by_side.Series(row.label, row.style, *row.arrays["by_draws"]) for row in rows]
    side_by_side.lines(axes, series, "draws averaged", "NLL, nats a row")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    return "NLL by the number of draws averaged, from fewest to most: " + "; ".join(
        f"{one.label} {phrases.number(first, 3)} with {one.x[0]:.0f}, {phrases.number(last, 3)} with {one.x[-1]:.0f}"
        for one in series
        for first, last in [(one.y[0], one.y[-1])]
    )


# ---- one for each row


def panel(axes: "Axes", row: Row, problem: Problem) -> str:
    arrays = row.arrays
    first = next(one for one in (problem.reference, *problem.rows) if one is not None and one.has("curve_x"))
    limits = panels.shared_limits(first.arrays["curve_lower"], first.arrays["curve_upper"], first.arrays["train_y"])
    panels.curve(
        axes,
        arrays["curve_x"],
        arrays["curve_mean"],
        arrays["curve_lower"],
        arrays["curve_upper"],
        arrays.get("curve_draws", np.zeros((0, 0)))[:MOST_FUNCTIONS],
        (arrays["train_x"].ravel(), arrays["train_y"].ravel()),
        row.style.colour,
    )
    axes.set_ylim(*limits)
    axes.locator_params(axis="both", nbins=4)
    width = arrays["curve_upper"] - arrays["curve_lower"]
    x = arrays["curve_x"]
    places = [0, len(x) // 2, len(x) - 1]
    return f"{row.label}: mean, interval, functions drawn and data. The interval's width is " + ", ".join(
        f"{phrases.number(width[i], 3)} at x = {phrases.number(x[i], 2)}" for i in places
    )


def reliability(axes: "Axes", row: Row, problem: Problem) -> str:
    if problem.is_regression:
        pit = row.arrays["pit"].ravel()
        calibration.reliability_of_intervals(axes, pit, row.style.colour)
        levels = np.array([0.5, 0.8, 0.9, 0.95])
        observed = calibration.central_coverage(pit, levels)
        return f"{row.label}: " + ", ".join(f"{o:.0%} of truths in {s:.0%} intervals" for s, o in zip(levels, observed))
    calibration.reliability_of_classes(axes, row.arrays["probs"], row.arrays["y"], row.style.colour)
    confidence, accuracy, _ = calibration.accuracy_by_confidence(row.arrays["probs"], row.arrays["y"])
    pairs = ", ".join(f"{a:.0%} right at confidence {c:.0%}" for c, a in zip(confidence, accuracy))
    return f"{row.label}: {pairs}"


def pit(axes: "Axes", row: Row, problem: Problem) -> str:
    values = row.arrays["pit"].ravel()
    calibration.pit_histogram(axes, values, row.style.colour)
    share = np.histogram(values, bins=10, range=(0, 1))[0] / len(values)
    middle, ends = share[4:6].sum(), share[0] + share[-1]
    return (
        f"{row.label}: {ends:.0%} of truths in the two outer tenths, {middle:.0%} in the two middle ones; 20% is right"
    )


def spread(axes: "Axes", row: Row, problem: Problem) -> str:
    pit_values, std = row.arrays["pit"].ravel(), row.arrays["std"].ravel()
    calibration.spread_quintiles(axes, pit_values, std, LEVEL, row.style.colour)
    covered = calibration.coverage_by_spread(pit_values, std, LEVEL)
    return f"{row.label}: coverage of 90% intervals from the surest fifth of rows to the least sure: " + ", ".join(
        f"{value:.0%}" for value in covered
    )


def entropies(axes: "Axes", row: Row, problem: Problem) -> str:
    inside, outside = row.arrays["entropy"], row.arrays["entropy_out"]
    entropy.entropy_in_and_out(axes, inside, outside, row.arrays["probs"].shape[1])
    return (
        f"{row.label}: median entropy {phrases.number(np.median(inside), 2)} nats for held-out rows, "
        f"{phrases.number(np.median(outside), 2)} for foreign ones"
    )


def rhat(axes: "list[Axes]", row: Row, problem: Problem) -> str:
    parts = []
    for one, name, what in zip(axes, ("weight_rhat", "function_rhat"), ("weights", "functions")):
        values = row.arrays[name].ravel()
        mixing.rhat_histogram(one, values, f"R-hat of {what}", row.style.colour)
        parts.append(f"{np.mean(values < mixing.THRESHOLD):.0%} of {what} below 1.05, worst {np.nanmax(values):.3f}")
    return f"{row.label}: R-hat of " + "; ".join(parts)


def trace(axes: "Axes", row: Row, problem: Problem) -> str:
    values = np.atleast_2d(row.arrays["trace"])
    mixing.trace(axes, values)
    means = ", ".join(phrases.number(chain.mean(), 3) for chain in values)
    num_chains = phrases.count(len(values), "chain")
    return f"{row.label}: log density of {num_chains} over the draws kept; their means are {means}"


def training(axes: "Axes", row: Row, problem: Problem) -> str | None:
    arrays = row.arrays
    if len(arrays["learning_epoch"]) < FEWEST_EPOCHS:
        return None
    kinds = ("training", "validation") if row.has("learning_validation") else ("objective",)
    lines = {LINES[kind]: arrays[f"learning_{kind}"] for kind in kinds if row.has(f"learning_{kind}")}
    epoch = arrays["learning_epoch"]
    training_curves.by_epoch(axes, epoch, lines, arrays["learning_stage"], row.style.colour)
    told = "; ".join(
        f"{name} {phrases.number(line[0], 3)} to {phrases.number(line[-1], 3)}" for name, line in lines.items()
    )
    return f"{row.label}: {phrases.count(int(epoch[-1]), 'epoch')}, from the first to the last: {told}"


# ---- of the recommended row, for everybody


def against_truth(axes: "Axes", row: Row, problem: Problem) -> str:
    y, mean = row.arrays["y"], row.arrays["mean"]
    lower, upper = (row.arrays[name][LEVELS.index(LEVEL)] for name in ("lower", "upper"))
    is_inside = (lower <= y) & (y <= upper)
    outcomes.against_truth(axes, y, mean, is_inside, row.style.colour)
    correlation = np.corrcoef(mean, y)[0, 1] if len(y) > 1 and np.ptp(mean) and np.ptp(y) else 0.0
    return (
        f"{row.label}: predicted against true, {phrases.count(len(y), 'held-out row')}; their correlation is "
        f"{correlation:.2f}, and {(~is_inside).sum()} truths lie outside their 90% interval"
    )


def along_rows(axes: "Axes", row: Row, problem: Problem) -> str:
    y, mean = row.arrays["y"], row.arrays["mean"]
    lower, upper = (row.arrays[name][LEVELS.index(LEVEL)] for name in ("lower", "upper"))
    outcomes.along_rows(axes, y, mean, lower, upper, row.style.colour)
    width = upper - lower
    narrow, wide = np.quantile(width, [0.1, 0.9])
    return (
        f"{row.label}: 90% intervals of held-out rows, from the lowest prediction to the highest; a tenth of them are "
        f"narrower than {phrases.number(narrow, 3)}, a tenth wider than {phrases.number(wide, 3)}"
    )


def sureness(axes: "Axes", row: Row, problem: Problem) -> str:
    probs, y = row.arrays["probs"], row.arrays["y"]
    confidence, is_right = probs.max(1), probs.argmax(1) == y
    outcomes.sureness(axes, confidence, is_right, row.style.colour)
    is_sure = confidence >= np.median(confidence)
    return (
        f"{row.label}: how sure it was of the class that it named, {phrases.count(len(y), 'held-out row')}; right for "
        f"{is_right[is_sure].mean():.0%} of the surer half and {is_right[~is_sure].mean():.0%} of the other"
        if (~is_sure).any()
        else f"{row.label}: right for {is_right.mean():.0%} of {phrases.count(len(y), 'held-out row')}"
    )


def confusion(axes: "Axes", row: Row, problem: Problem) -> str | None:
    probs, y = row.arrays["probs"], row.arrays["y"]
    names = problem.data.get("class_names") or [str(k) for k in range(probs.shape[1])]
    if len(names) > outcomes.MOST_CLASSES:
        return None
    counts = outcomes.confused(axes, y, probs.argmax(1), names, row.style.colour)
    wrong = [(counts[i, j], names[i], names[j]) for i in range(len(names)) for j in range(len(names)) if i != j]
    most, true, said = max(wrong)
    told = f"the commonest mistake is {said} for {true}, {phrases.count(int(most), 'time')}" if most else "no mistakes"
    return f"{row.label}: what was said against what was true, {int(counts.trace())} of {len(y)} right; {told}"


NO_MOVE = 0.005  # which would be shown as 0 %


def moves_predictions(axes: "Axes", row: Row, problem: Problem) -> str:
    return _drivers(axes, row, "driver_mean", "how far predictions move")


def moves_uncertainty(axes: "Axes", row: Row, problem: Problem) -> str:
    if row.arrays["driver_spread"].max() < NO_MOVE:
        axes.set_axis_off()
        axes.text(0.0, 0.9, "No column: it is as unsure of every row.", transform=axes.transAxes, fontsize=8)
        return f"{row.label} is as unsure of every row: no column moves its uncertainty"
    return _drivers(axes, row, "driver_spread", "how far the uncertainty moves")


def _drivers(axes: "Axes", row: Row, key: str, what: str) -> str:
    names, values = row.arrays["driver_names"].tolist(), row.arrays[key]
    outcomes.bars(axes, names, values, what, row.style.colour)
    first = np.argsort(-values, kind="stable")[:5]
    told = ", ".join(f"{names[i]} {values[i]:.0%}" for i in first)
    return f"{row.label}, {what} when one column is shuffled, the most first: {told}"
