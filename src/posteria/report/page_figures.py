"""Every picture of the report, by section. A new one is a function that draws (`page_drawings.py`), and a line below.

A picture is drawn for each row that has the arrays it needs, or once for all rows together. Where no row has them, it,
and its section when nothing else is in it, is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from posteria.plots import svg
from posteria.report import page_drawings as draw


@dataclass(frozen=True)
class Figure:
    title: str
    caption: str
    draw: Callable[..., str | None]  # (axes, row, problem) or, for all together, (axes, rows, problem)
    needs: tuple[str, ...] = ()  # arrays
    size: tuple[float, float] = svg.SMALL
    together: bool = False
    columns: int = 1  # axes side by side; more than one are handed over as a list
    share_y: bool = False
    of_chosen: bool = False  # of the recommended row alone


class Section(NamedTuple):
    title: str
    lead: str
    figures: tuple[Figure, ...]
    is_appendix: bool = False


FOR_EVERYBODY = (
    Section(
        "How its predictions turned out",
        "",
        (
            Figure(
                "Predicted against true",
                "A dot a held-out row; on the dashed line the prediction is right. Crosses lie outside their 90 % "
                "interval: one in ten should.",
                draw.against_truth,
                ("y", "mean", "lower", "upper"),
                svg.MIDDLE,
                of_chosen=True,
            ),
            Figure(
                "Intervals along the rows",
                "A bar is a row's 90 % interval, the dot what came true. Wide bars are rows of which it is less sure.",
                draw.along_rows,
                ("y", "mean", "lower", "upper"),
                svg.MIDDLE,
                of_chosen=True,
            ),
            Figure(
                "How sure it was, and whether it was right",
                "A dot a held-out row; crosses are mistakes. Mistakes should be where it was not sure.",
                draw.sureness,
                ("y", "probs"),
                svg.MIDDLE,
                of_chosen=True,
            ),
            Figure(
                "What was said, against what was true",
                "Held-out rows by their true class and by the class that was named.",
                draw.confusion,
                ("y", "probs"),
                svg.MIDDLE,
                of_chosen=True,
            ),
        ),
    ),
    Section(
        "What drives it",
        "One column at a time is shuffled among the held-out rows. Of columns that say the same each looks weaker than "
        "it is; and what a prediction hangs on need not be a cause.",
        (
            Figure(
                "What the predictions hang on",
                "How far predictions move, in units of their own spread."
                " Of classes: how much probability changes hands.",
                draw.moves_predictions,
                ("driver_names",),
                svg.MIDDLE,
                of_chosen=True,
            ),
            Figure(
                "What the uncertainty hangs on",
                "How far the predicted spread (of classes: the entropy) moves, as a share of its average.",
                draw.moves_uncertainty,
                ("driver_names",),
                svg.MIDDLE,
                of_chosen=True,
            ),
        ),
    ),
)

SECTIONS = (
    Section(
        "What the truth costs",
        "",
        (
            Figure(
                "Distance to the reference against cost",
                "Left is cheap, low is near the reference. A method at the dashed line is as close to the reference as "
                "the reference's own chains are to one another: no method can be seen to do better.",
                draw.cost_and_distance,
                (),
                svg.LARGE,
                together=True,
            ),
        ),
    ),
    Section(
        "What each method believes",
        "The mean, the 90% interval of y, and a few functions drawn from each posterior, the reference first. Between "
        "and beyond the data the band should widen.",
        (Figure("Fitted curves", "", draw.panel, ("curve_x", "train_x"), svg.MIDDLE),),
    ),
    Section(
        "Do stated probabilities come true?",
        "",
        (
            Figure(
                "Reliability of intervals",
                "Share of truths inside central intervals, against the share stated. Below the diagonal: "
                "overconfident. Grey: what chance alone makes.",
                draw.reliability,
                ("pit",),
            ),
            Figure(
                "Reliability of classes",
                "How often the most probable class is right, against its probability. Below the diagonal: "
                "overconfident. A larger mark stands for more rows.",
                draw.reliability,
                ("probs",),
            ),
            Figure(
                "Where truths fall in their predictive distributions (PIT)",
                "Flat is right; a U is too narrow, a hill too wide, a slope biased. Grey: what chance alone makes.",
                draw.pit,
                ("pit",),
            ),
            Figure(
                "Coverage of 90% intervals by predicted spread",
                "In fifths of the rows, from the surest to the least sure. An average of 90% can hide too little where "
                "a method is sure and too much where it is not.",
                draw.spread,
                ("pit", "std"),
            ),
        ),
    ),
    Section(
        "Is the uncertainty of use?",
        "",
        (
            Figure(
                "Error against the fraction rejected",
                "Hand the most uncertain rows to someone else: the error of the rest should fall.",
                draw.rejection,
                ("y",),
                svg.LARGE,
                together=True,
            ),
            Figure(
                "Entropy of held-out and of foreign rows",
                "Blue: rows like the training data. Orange, dashed: rows unlike them, which should lie to the right.",
                draw.entropies,
                ("entropy", "entropy_out", "probs"),
            ),
            Figure(
                "Quality against the number of draws averaged",
                "Where the line is flat, fewer draws would do.",
                draw.quality_by_draws,
                ("by_draws",),
                svg.LARGE,
                together=True,
            ),
        ),
    ),
    Section(
        "How training went",
        "What each method climbed, epoch by epoch, on average over its members: its log density, or the bound on the "
        "evidence. Where a share of the rows was held out, the log score of these beside that of rows trained on. A "
        "line that still rises at the end would have gained by more epochs; thin rules are where a stage ends.",
        (Figure("Objective by epoch", "", draw.training, ("learning_epoch",)),),
    ),
    Section(
        "Have the chains mixed?",
        "Weights may disagree between chains while the functions they make agree; predictions need the second. "
        "Left of the dashed line (1.05) counts as mixed.",
        (
            Figure(
                "R-hat in weight space and in function space",
                "",
                draw.rhat,
                ("weight_rhat", "function_rhat"),
                svg.MIDDLE,
                columns=2,
                share_y=True,
            ),
            Figure("Traces of the log density", "One colour a chain.", draw.trace, ("trace",), svg.MIDDLE),
        ),
        is_appendix=True,
    ),
)
