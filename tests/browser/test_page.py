"""The report in a real browser: from disk, on a phone and a desk, by day and by night, without a script, on paper."""

import json
from itertools import pairwise

import pytest

from posteria.report import write
from report import made_up

PHONE, DESK, A4 = 390, 1280, 700  # CSS pixels; A4 within its margins
LEAST_TEXT = 8.0  # CSS pixels of the smallest words in a picture


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write(made_up.folder(tmp_path_factory.mktemp("results"), failed="mean-field"))


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_opens_without_errors_and_without_the_network(browser, page, width, tmp_path):
    browser.open(page, width)
    browser.screenshot(tmp_path / f"report-{width}.png")
    assert browser.driver.get_log("browser") == []
    assert browser.run("return performance.getEntriesByType('resource').map(e => e.name)") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    requests = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert {url for url in requests if not url.startswith("data:")} == {page.as_uri()}
    assert (tmp_path / f"report-{width}.png").stat().st_size > 50_000


@pytest.mark.parametrize("width", [320, PHONE, DESK])
def test_the_page_does_not_scroll_sideways_but_the_table_does(browser, page, width):
    browser.open(page, width)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    box = browser.run("const b = document.querySelector('.scroll:has(.scores)'); return [b.clientWidth, b.scrollWidth]")
    assert box[0] <= width
    if width <= PHONE:
        assert box[1] > box[0]


def test_the_method_stays_in_sight_while_the_table_scrolls(browser, page):
    browser.open(page, PHONE)
    left = browser.run(
        "const b = document.querySelector('.scroll:has(.scores)'); b.scrollLeft = 200;"
        "return b.querySelector('tbody th').getBoundingClientRect().left - b.getBoundingClientRect().left"
    )
    assert abs(left) < 1


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_words_in_pictures_are_large_enough_and_do_not_lie_on_each_other(browser, page, width):
    browser.open(page, width)
    small, overlapping = browser.run(
        """
        const small = [], overlapping = [];
        for (const svg of document.querySelectorAll('svg')) {
          const texts = [...svg.querySelectorAll('text')].map(t => ({
            words: t.textContent, box: t.getBoundingClientRect(),
            size: parseFloat(getComputedStyle(t).fontSize) * svg.getScreenCTM().a}));
          for (const t of texts) if (t.size < arguments[0]) small.push([t.words, t.size]);
          texts.forEach((one, i) => texts.slice(i + 1).forEach(other => {
            const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
            const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
            if (wide > 2 && high > 0.4 * one.size) overlapping.push([one.words, other.words, svg.ariaLabel]);
          }));
        }
        return [small, overlapping];
        """,
        LEAST_TEXT,
    )
    assert small == []
    assert overlapping == []


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_first_screen_says_what_to_use_why_and_what_to_do_next(browser, page, width):
    browser.open(page, width)
    tops = browser.run(
        "const first = document.querySelector('article');"
        "return ['.first>.name', '.points div', '.first .next pre', '.hands-on', '.compared', '.scores', '.appendix']"
        ".map(what => first.querySelector(what).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    assert tops[0] < 500 and tops[1] < 900
    if width == DESK:
        assert tops[2] < 900  # the command is on the first screen


def test_read_aloud_in_order_it_makes_sense(browser, page):
    """Headings go down one step at a time, and the first screen is text: no picture, no table before it ends."""
    browser.open(page)
    levels = browser.run("return [...document.querySelectorAll('h1, h2, h3, h4')].map(e => Number(e.tagName[1]))")
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))
    words = browser.run(
        "const first = document.querySelector('.first');"
        "return [first.querySelectorAll('svg, table').length, first.innerText]"
    )
    assert words[0] == 0
    for part in ("Use ", "Why", "How good", "What it costs", "What to do next", "posteria fit"):
        assert part in words[1]
    for jargon in ("NLL", "W1", "posterior", "R-hat", "prior"):
        assert jargon not in words[1].replace("posteria", "")


def test_every_picture_has_an_alternative_text(browser, page):
    browser.open(page)
    missing, total = browser.run(
        "const all = [...document.querySelectorAll('svg, img')];"
        "return [all.filter(e => !(e.getAttribute('aria-label') || e.alt || '').trim()).length, all.length]"
    )
    assert total > 50 and missing == 0


def column_of(browser, place):
    return browser.run(
        "return [...document.querySelector('table.scores').tBodies[0].rows]"
        ".map(r => r.cells.length > arguments[0] ? r.cells[arguments[0]].dataset.value ?? null : null)",
        place,
    )


def click(browser, place):
    browser.driver.find_elements("css selector", "table.scores:first-of-type tr.names th button")[place].click()


def test_a_click_on_a_heading_sorts_and_another_turns_the_order(browser, page):
    browser.open(page)
    before = column_of(browser, 1)
    click(browser, 1)
    ascending = column_of(browser, 1)
    numbers = [float(one) for one in ascending if one is not None]
    assert (
        numbers == sorted(numbers) and sorted(map(str, before)) == sorted(map(str, ascending)) and before != ascending
    )
    assert ascending[-1] is None  # the row that failed
    heading = "return document.querySelectorAll('table.scores tr.names th')[1].getAttribute('aria-sort')"
    assert browser.run(heading) == "ascending"
    click(browser, 1)
    descending = column_of(browser, 1)
    assert descending[:-1] == ascending[:-1][::-1] and descending[-1] is None
    assert browser.run(heading) == "descending"


def test_coverage_is_sorted_by_its_distance_from_the_goal_and_names_by_letter(browser, page):
    browser.open(page)
    click(browser, 3)
    distances = [abs(float(one) - 0.9) for one in column_of(browser, 3) if one is not None]
    assert distances == sorted(distances)
    click(browser, 0)
    names = browser.run(
        "return [...document.querySelector('table.scores').querySelectorAll('.label')]"
        ".map(e => e.textContent.toLowerCase())"
    )
    assert names == sorted(names)


def test_minor_columns_are_there_on_demand_also_without_a_script(browser, page):
    for script in (True, False):
        browser.open(page, script=script)
        first = browser.driver.find_element("css selector", "table.scores")
        shown = [
            one.text.split()[0] for one in first.find_elements("css selector", "tr.names th") if one.is_displayed()
        ]
        assert "width" not in shown and "RMSE" in shown
        browser.driver.find_element("css selector", ".toggle input").click()
        shown = [
            one.text.split()[0] for one in first.find_elements("css selector", "tr.names th") if one.is_displayed()
        ]
        assert "width" in shown


def colours(browser):
    """Of paper, ink, words in a picture and lines in it."""
    return browser.run(
        "const of = (what, property) => getComputedStyle(document.querySelector(what))[property];"
        "return [of('html', 'backgroundColor'), of('html', 'color'), of('svg text', 'fill'),"
        " of('svg path[style*=muted], svg path[style*=rule]', 'stroke')]"
    )


def test_by_night_paper_ink_and_pictures_change(browser, page, tmp_path):
    browser.open(page, DESK)
    day = colours(browser)
    browser.open(page, DESK, dark=True)
    night = colours(browser)
    browser.screenshot(tmp_path / "report-dark.png")
    assert all(one != other for one, other in zip(day, night)), (day, night)
    brightness = [sum(map(int, colour[4:-1].split(","))) for colour in night[:2]]
    assert brightness[0] < 150 and brightness[1] > 600


def test_without_a_script_everything_is_there_but_sorting(browser, page):
    browser.open(page, DESK, script=False)
    text = browser.driver.page_source
    assert "<button" not in text and text.count("<tbody>") == 6 + 4  # scores, rows worth a look, and shift
    hint = browser.driver.find_element("class name", "with-script")
    assert not hint.is_displayed()


def test_on_paper_nothing_is_cut_off_and_the_paper_is_light(browser, page):
    browser.open(page, A4, dark=True, media="print")
    cut = browser.run(
        "return [...document.querySelectorAll('table, svg, pre, p')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className || e.tagName)"
    )
    assert cut == []
    red = int(colours(browser)[0][4:].split(",")[0])
    assert red > 240


def test_a_running_comparison_opens_too(browser, tmp_path):
    browser.open(write(made_up.folder(tmp_path, finished=4, failed=None)), PHONE)
    assert browser.driver.get_log("browser") == []
    assert browser.run("return 'running' in document.body.dataset")  # and renews itself
    assert "is being fitted" in browser.driver.find_element("css selector", "[role=status]").text
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_shift_comes_after_the_scores_and_its_tables_scroll_by_themselves(browser, page, width):
    browser.open(page, width)
    found = browser.run(
        "const part = document.querySelector('article .shift');"
        "part.querySelectorAll('details').forEach(one => one.open = true);"
        "const scores = document.querySelector('.scores').getBoundingClientRect().bottom;"
        "const pictures = [...part.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect().right);"
        "return [part.getBoundingClientRect().top > scores, part.querySelectorAll('.said-of-shift').length,"
        " Math.max(...pictures), document.documentElement.scrollWidth,"
        " [...part.querySelectorAll('.scroll')].map(box => box.clientWidth)]"
    )
    assert found[0] and found[1] >= 3
    assert found[2] <= width and found[3] <= width and max(found[4]) <= width


def test_curves_of_training_are_small_multiples(browser, page):
    browser.open(page, PHONE)
    tops = browser.run(
        "const part = [...document.querySelectorAll('article section')].find("
        "one => one.querySelector('h3')?.textContent === 'How training went');"
        "return [...part.querySelectorAll('figure')].map(one => Math.round(one.getBoundingClientRect().top))"
    )
    assert len(tops) > 4 and len(set(tops)) <= len(tops) // 2 + 1  # two abreast on a phone
