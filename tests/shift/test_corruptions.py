"""Common corruptions: against SciPy, Pillow and matplotlib where these do the same, else by what stays or changes."""

import io

import matplotlib.colors
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

import posteria as po
from posteria.shift import corruptions, filters, weather

RNG = np.random.default_rng(0)
SMOOTH = ndimage.gaussian_filter(RNG.uniform(size=(3, 32, 32, 3)), (0, 2, 2, 0))
IMAGES = ((SMOOTH - SMOOTH.min()) / np.ptp(SMOOTH)).astype(np.float32)  # with all of [0, 1], and with shapes in them
GREY = np.full((400, 16, 16), 0.5, np.float32)  # one channel, for moments


def test_names_and_severities_are_those_of_the_benchmark():
    assert len(corruptions.COMMON) == 15 and len(corruptions.EXTRA) == 4
    assert all(len(constants) == 5 for _, constants in (corruptions.COMMON | corruptions.EXTRA).values())


@pytest.mark.parametrize("name", ["glass_blur", "frost", "elastic_transform"])
def test_the_key_decides_and_images_differ(name):
    twice = np.stack([IMAGES[0], IMAGES[0]])
    first, again, other = (po.shift.corrupt(twice, name, 3, key=key) for key in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01
    assert np.abs(first[0] - first[1]).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("severity", corruptions.SEVERITIES)
@pytest.mark.parametrize("name", po.shift.CORRUPTIONS)
def test_every_corruption_gives_images(name, severity):
    found = po.shift.corrupt(IMAGES, name, severity)
    assert found.shape == IMAGES.shape and found.dtype == np.float32
    assert np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1
    assert np.abs(found - IMAGES).mean() > 0.001
    if name != "saturate":
        grey = po.shift.corrupt(IMAGES[..., 0], name, severity)
        assert grey.shape == IMAGES.shape[:3] and np.isfinite(grey).all()


def test_whole_numbers_come_back_whole():
    bytes_ = np.round(255 * IMAGES).astype(np.uint8)
    found = po.shift.corrupt(bytes_, "contrast", 1)
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found, 255 * po.shift.corrupt(bytes_ / np.float32(255), "contrast", 1), atol=0.51)


# ---- noises: moments


@pytest.mark.parametrize(
    "name, std", [("gaussian_noise", 0.1), ("shot_noise", (0.5 / 50) ** 0.5), ("speckle_noise", 0.5 * 0.2)]
)
def test_noise_has_the_spread_that_it_should(name, std):
    change = po.shift.corrupt(GREY, name, 5) - 0.5
    assert abs(change.mean()) < 4 * std / change.size**0.5
    assert abs(change.std() / std - 1) < 4 / (2 * change.size) ** 0.5 + 1e-4  # a few of 100,000 are cut at 0 and 1


def test_impulses_hit_the_share_that_they_should():
    found = po.shift.corrupt(GREY, "impulse_noise", 5)
    for value in (0.0, 1.0):
        assert abs((found == value).mean() - 0.035) < 4 * (0.035 / found.size) ** 0.5
    assert set(np.unique(found)) == {0.0, 0.5, 1.0}


# ---- blurs and warps: against SciPy


def test_gaussian_blur_is_scipys():
    expected = ndimage.gaussian_filter(IMAGES, (0, 1, 1, 0), mode="nearest", truncate=4.0)
    np.testing.assert_allclose(po.shift.corrupt(IMAGES, "gaussian_blur", 5), expected, atol=2e-6)


def test_defocus_is_a_convolution_with_a_disk():
    kernel = filters.disk(1.5, 0.1)
    assert abs(kernel.sum() - 1) < 1e-9
    np.testing.assert_allclose(kernel[7:10, 7:10], 1 / 9, atol=1e-9)  # of radius 1.5: nine pixels
    expected = ndimage.convolve(IMAGES, kernel[None, :, :, None], mode="mirror")
    np.testing.assert_allclose(po.shift.corrupt(IMAGES, "defocus_blur", 5), expected, atol=2e-6)


def test_zoom_blur_is_scipys_zoom_averaged():
    def zoomed(image, factor):
        crop = int(np.ceil(32 / factor))
        top = (32 - crop) // 2
        large = ndimage.zoom(image[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
        trim = (large.shape[0] - 32) // 2
        return large[trim : trim + 32, trim : trim + 32]

    factors = np.arange(1, 1.26, 0.01)
    expected = np.mean([IMAGES[0], *(zoomed(IMAGES[0], factor) for factor in factors)], 0)
    np.testing.assert_allclose(po.shift.corrupt(IMAGES, "zoom_blur", 5)[0], expected, atol=3e-6)


def test_glass_moves_pixels_and_loses_none():
    found = po.shift.corrupt(IMAGES, "glass_blur", 1)  # whose blurs are of a twentieth of a pixel
    np.testing.assert_allclose(np.sort(found.reshape(3, -1, 3), 1), np.sort(IMAGES.reshape(3, -1, 3), 1), atol=1e-6)
    assert np.abs(found - IMAGES).mean() > 0.001


def test_motion_smears_along_one_line():
    point = np.zeros((64, 32, 32), np.float32)
    point[:, 16, 16] = 1.0
    found = po.shift.corrupt(point, "motion_blur", 3)
    np.testing.assert_allclose(found.sum((1, 2)), 1.0, atol=1e-5)
    weights = np.exp(-0.5 * (np.arange(13) / 2) ** 2)
    np.testing.assert_allclose(found[:, 16, 16], (weights / weights.sum())[0], atol=1e-5)
    rows, columns = np.nonzero(found[0])
    assert len(rows) <= 13 and columns.max() <= 16  # angles within 45 degrees of the horizontal
    level = np.full((2, 16, 16), 0.3, np.float32)
    np.testing.assert_allclose(po.shift.corrupt(level, "motion_blur", 5), level, atol=1e-6)


def test_an_elastic_warp_moves_points_by_what_it_says():
    ramp = np.broadcast_to(np.arange(32, dtype=np.float32)[:, None] / 31, (64, 32, 32))
    found = po.shift.corrupt(ramp, "elastic_transform", 1)[:, 12:20, 12:20]  # affine alone: a ramp stays a plane
    y, x = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    design = np.stack([np.ones(64), y.ravel(), x.ravel()], 1)
    plane = design @ np.linalg.lstsq(design, found.reshape(64, 64).T, rcond=None)[0]
    np.testing.assert_allclose(plane.T, found.reshape(64, 64), atol=1e-5)
    moved = 31 * np.abs(found - ramp[:, 12:20, 12:20]).mean((1, 2))
    assert 0.2 < moved.mean() < 0.08 * 32 * 2


# ---- weather


def test_frost_adds_a_part_of_a_photograph():
    black = np.zeros((300, 32, 32, 3), np.float32)
    found = po.shift.corrupt(black, "frost", 1) / 0.2
    pictures = weather.frost_pictures(32, 32)
    assert len(pictures) == 5
    for image in found[:5]:  # it stands somewhere in one of them
        tops = [(p, np.argwhere(np.isclose(p[:-31, :-31], image[0, 0], atol=1e-5).all(-1))) for p in pictures]
        assert any(np.allclose(p[y : y + 32, x : x + 32], image, atol=1e-4) for p, places in tops for y, x in places)
    expected = np.mean([ndimage.uniform_filter(p, (32, 32, 1))[16:-16, 16:-16].mean() for p in pictures])
    assert abs(found.mean() - expected) < 4 * found.mean((1, 2, 3)).std() / 300**0.5


def test_fog_is_smooth_and_grey():
    import jax

    haze = np.asarray(jax.vmap(lambda key: weather.plasma(key, 32, 3.0))(jax.random.split(jax.random.key(0), 64)))
    assert haze.min() == 0.0 and haze.max() == 1.0
    power = (np.abs(np.fft.rfft2(haze - haze.mean((1, 2), keepdims=True))) ** 2).mean(0)
    slow, fast = power[1:4, 1:4].mean(), power[8:16, 8:16].mean()
    assert slow > 1000 * fast  # amplitudes fall by 9 with each level
    white = np.ones((1, 32, 32, 3), np.float32)
    found = po.shift.corrupt(white, "fog", 5)
    np.testing.assert_allclose(found[..., 0], found[..., 2], atol=1e-6)


@pytest.mark.slow
def test_snow_and_drops_are_light_and_mud_hides():
    black = np.full((16, 32, 32, 3), 0.1, np.float32)
    assert (po.shift.corrupt(black, "snow", 5) >= 0.1 - 1e-6).all()
    assert (po.shift.corrupt(black, "spatter", 1) >= 0.1 - 1e-6).all()
    white = np.ones((16, 32, 32, 3), np.float32)
    mud = po.shift.corrupt(white, "spatter", 5)
    hit = mud[..., 0] < 0.99
    assert 0.01 < hit.mean() < 0.6
    np.testing.assert_allclose(1 - mud[hit][:, 0], (1 - mud[hit][:, 2]) * (1 - 63 / 255) / (1 - 20 / 255), atol=1e-5)


# ---- colours and files: against matplotlib and Pillow


def test_brightness_and_saturation_are_those_of_hsv():
    hsv = matplotlib.colors.rgb_to_hsv(IMAGES)
    brighter = np.concatenate([hsv[..., :2], np.clip(hsv[..., 2:] + 0.3, 0, 1)], -1)
    found = po.shift.corrupt(IMAGES, "brightness", 5)
    np.testing.assert_allclose(found, matplotlib.colors.hsv_to_rgb(brighter), atol=1e-5)
    paler = np.stack([hsv[..., 0], np.clip(0.3 * hsv[..., 1], 0, 1), hsv[..., 2]], -1)
    np.testing.assert_allclose(po.shift.corrupt(IMAGES, "saturate", 1), matplotlib.colors.hsv_to_rgb(paler), atol=1e-5)


def test_contrast_is_about_each_channels_mean():
    mean = IMAGES.mean((1, 2), keepdims=True)
    np.testing.assert_allclose(po.shift.corrupt(IMAGES, "contrast", 5), 0.15 * (IMAGES - mean) + mean, atol=1e-6)


def test_pixelate_is_pillows_box():
    bytes_ = np.round(255 * IMAGES).astype(np.uint8)
    small = Image.fromarray(bytes_[0]).resize((20, 20), Image.Resampling.BOX)
    expected = np.asarray(small.resize((32, 32), Image.Resampling.BOX), float)
    found = po.shift.corrupt(bytes_, "pixelate", 5)[0].astype(float)
    assert np.abs(found - expected).max() <= 1  # Pillow rounds in between


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1)])
def test_jpeg_is_pillows(shape):
    bytes_ = np.round(255 * IMAGES[:, : shape[0], : shape[1], : shape[2]]).astype(np.uint8)
    found = po.shift.corrupt(bytes_, "jpeg_compression", 5).astype(float)
    for image, ours in zip(bytes_, found):
        file = io.BytesIO()
        Image.fromarray(image if shape[2] == 3 else image[..., 0]).save(file, "JPEG", quality=40)
        theirs = np.asarray(Image.open(file), float).reshape(shape)
        assert np.abs(ours - theirs).mean() < 0.2 * max(1.0, np.abs(theirs - image).mean())


# ---- what is refused


@pytest.mark.parametrize(
    "given, name, severity, words",
    [
        (IMAGES, "rain", 1, "the corruption is 'rain'"),
        (IMAGES, "fog", 6, "severity is 6"),
        (IMAGES, "fog", 3.0, "severity is 3.0"),
        (IMAGES, ["fog"], 3, "the corruption is ['fog']"),
        (IMAGES - 0.5, "fog", 1, "before they are standardised"),
        (IMAGES[0, :, :, 0], "fog", 1, "images are (32, 32)"),
        (np.ones((2, 32, 32), np.int64), "fog", 1, "images are int64"),
        (IMAGES[..., 0], "saturate", 1, "colours"),
        (np.full_like(IMAGES, np.nan), "fog", 1, "floats in [0, 1]"),
    ],
)
def test_what_is_no_image_is_refused(given, name, severity, words):
    with pytest.raises(po.errors.PosteriaError) as caught:
        po.shift.corrupt(given, name, severity)
    assert words in str(caught.value)
