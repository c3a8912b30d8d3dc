"""The numbers behind the pictures, the colours they are drawn in, and SVG that lives beside other SVG."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from posteria.plots import calibration, mixing, panels, side_by_side, theme
from posteria.plots.svg import LARGE, SMALL, Canvas

TEXT_CONTRAST, GRAPHIC_CONTRAST = 4.5, 3.0  # WCAG 2.2, AA

# Machado et al. 2009, severity 1, on linear RGB
VISIONS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    bright, dim = sorted(
        (linear(one) @ [0.2126, 0.7152, 0.0722], linear(other) @ [0.2126, 0.7152, 0.0722]), reverse=True
    )
    return (bright + 0.05) / (dim + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-6))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("paper", ["light", "dark"])
def test_every_colour_stands_out_from_its_paper(paper):
    background = getattr(theme.PAPER, paper)
    for name, colour in theme.COLOURS.items():
        if name == "rule":  # hairlines carry nothing that is not said otherwise
            continue
        least = TEXT_CONTRAST if name in ("ink", "muted") else GRAPHIC_CONTRAST
        assert contrast(getattr(colour, paper), background) >= least, name


@pytest.mark.parametrize("paper", ["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
def test_the_two_colours_of_a_picture_without_names_are_told_apart_in_every_vision(vision, paper):
    """Entropy in and out of distribution: blue and vermillion; a difference of 20 in CIELAB is plain to see."""
    one, other = (lab(VISIONS[vision] @ linear(getattr(theme.COLOURS[name], paper))) for name in ("blue", "vermillion"))
    assert np.linalg.norm(one - other) > 20


def test_no_two_of_fourteen_methods_look_alike_also_without_colour():
    roles = ["reference"] + ["method"] * 14 + ["baseline"] * 4
    found = theme.styles(roles)
    assert len({style.marker for style in found[:15]}) == 15
    assert len({(style.colour, style.dash) for style in found[:15]}) == 15
    for one, other in itertools.combinations(found, 2):
        assert (one.colour, one.marker) != (other.colour, other.marker)


def test_coverage_of_a_uniform_pit_is_what_is_stated():
    pit = (np.arange(1000) + 0.5) / 1000
    levels = np.array([0.1, 0.5, 0.9])
    assert np.allclose(calibration.central_coverage(pit, levels), levels, atol=1e-12)


def test_coverage_by_spread_looks_at_the_surest_fifth_first():
    std = np.arange(10.0)[::-1]
    pit = np.array([0.999, 0.5] * 5)  # of rows with std 9, 8, 7, ...: outside, inside, ...
    pit[std < 2] = 0.999
    assert np.array_equal(calibration.coverage_by_spread(pit, std, 0.9), [0, 0.5, 0.5, 0.5, 0.5])


def test_likely_shares_are_wilsons():
    """Its ends are the shares p at which what was seen is two standard errors, sqrt(p (1 - p) / n), away."""
    seen = np.array([0.0, 0.3, 1.0])
    lower, upper = calibration.likely_share(seen, 25)
    for end in (lower, upper):
        assert np.allclose((seen - end) ** 2, 4 * end * (1 - end) / 25, atol=1e-12)
    assert lower[0] == 0 and np.isclose(upper[2], 1)


def test_accuracy_by_confidence_keeps_confidence_one():
    probs = np.array([[1.0, 0.0], [0.97, 0.03], [0.55, 0.45]])
    confidence, accuracy, count = calibration.accuracy_by_confidence(probs, np.array([0, 1, 0]))
    assert np.allclose(confidence, [0.55, 0.985]) and np.allclose(accuracy, [1, 0.5]) and list(count) == [1, 2]


def test_rejecting_the_most_uncertain_leaves_the_error_of_the_rest():
    error = np.arange(100.0)
    rejected, left = side_by_side.error_by_rejection(error, uncertainty=error)
    kept = 100 * (1 - rejected)
    assert rejected[0] == 0 and rejected[-1] == 0.9
    assert np.allclose(left, (kept - 1) / 2)
    assert np.allclose(side_by_side.error_by_rejection(error, -error, root=True)[1] ** 2, 99 - (kept - 1) / 2)


def test_a_picture_is_text_and_variables_and_its_ids_are_its_own():
    def picture(height):
        with Canvas(SMALL) as canvas:
            canvas.axes[0].plot([0, 1], [0, height], color=theme.BLUE, marker="o")
            canvas.axes[0].set_xlabel("quantile & <more>")
            return canvas.svg('says "this" & that')

    one, other = picture(1), picture(2)
    assert one == picture(1)
    root = ElementTree.fromstring(one)
    assert root.attrib["aria-label"] == 'says "this" & that'
    assert "quantile & <more>" in "".join(root.itertext())
    assert "var(--blue)" in one and theme.BLUE not in one and "font-family" not in one
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (one, other)]
    assert ids[0] and ids[1] and not ids[0] & ids[1]


def test_shortened_paths_are_the_paths():
    """Every point that Matplotlib wrote is there, to a tenth of a point."""
    from posteria.plots.svg import _short_path

    long = "M 43.147636 54.547918 \nL 43.15 135.805091 \nL 44.882512 12 \nM 1.04 2 \nL -3.06 4 \nz\n"
    numbers = [float(one) for one in re.findall(r"-?\d+\.?\d*", long)]
    short = [float(one) for one in re.findall(r"-?\d+\.?\d*", _short_path(long))]
    assert np.allclose(short, numbers, atol=0.05 + 1e-9)
    assert _short_path(long).count("M") == 2 and _short_path(long).endswith("z")
    curve = "M 0 1.5 \nC 0.397 1.5 0.779 1.342 1.06 1.06 \nL 2.04 3.01 \nz"
    assert re.sub(r"[^MCLz]", "", _short_path(curve)) == "MCLz"


def test_names_of_points_lie_on_no_other_name():
    points = [
        side_by_side.Point(f"method {i}", style, 10.0 + i, 0.1 + 0.002 * i, 0.0)
        for i, style in enumerate(theme.METHODS[:6])
    ]
    with Canvas(LARGE) as canvas:
        side_by_side.cost_against_distance(canvas.axes[0], points, "seconds", "W1", ceiling=0.09)
        canvas.svg("")
        boxes = [text.get_window_extent() for text in canvas.axes[0].texts]
    assert len(boxes) == 7
    assert not [1 for one, other in itertools.combinations(boxes, 2) if one.overlaps(other)]


def test_panels_side_by_side_show_the_band_but_no_farther_than_the_data_can_judge():
    train_y = np.array([-1.0, 1.0])
    limits = [panels.shared_limits(np.array([-band]), np.array([band]), train_y) for band in (1.2, 3.0, 100.0)]
    assert limits == [(-2.0, 2.0), (-3.0, 3.0), (-5.0, 5.0)]


def test_r_hats_that_are_not_numbers_count_as_the_worst():
    with Canvas(SMALL) as canvas:
        mixing.rhat_histogram(canvas.axes[0], np.array([1.0, 1.01, np.nan, np.inf]), "weights")
        heights = [bar.get_height() for bar in canvas.axes[0].patches]
    assert np.isclose(sum(heights), 1.0) and np.isclose(heights[-1], 0.5)
