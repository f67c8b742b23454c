"""The report in a real browser, opened as the file that it is: drawn, hovered over, on a phone, on paper."""

from __future__ import annotations

import base64
import json

import pytest

from browsing import assert_no_errors, assert_only_this_machine_was_asked, forget, needs_chromium, open_chromium, wait_until
from pairtune.report.page import write_report
from pairtune.runs.evidence import read_evidence
from pairtune.training import run
from report_runs import NASTY, duplicates_task, make_small_recipe

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_encoder):
    folder = tmp_path_factory.mktemp("browsed") / "twins" / "seed-1"
    run(make_small_recipe(tiny_encoder, train={"epochs": 2}), 1, out=folder, task=duplicates_task())
    put_into_first_batch(folder / "evidence.json", NASTY)
    write_report([folder], folder / "report.html")
    return folder


def put_into_first_batch(path, text):
    """Let the text be a left and a right one of the batch that is shown, whichever batch it was in."""
    evidence = json.loads(path.read_text())
    seen = evidence["stages"][0]["snapshots"]["1"]
    seen["left"][3] = seen["right"][4] = text
    path.write_text(json.dumps(evidence))


@pytest.fixture(scope="module")
def chromium():
    with open_chromium() as driver:
        yield driver


@pytest.fixture
def browser(chromium, folder):
    """The page, drawn; afterwards nothing was asked of others and nothing went wrong unnoticed."""
    forget(chromium)
    open_page(chromium, folder)
    yield chromium
    assert_only_this_machine_was_asked(chromium)
    assert_no_errors(chromium)


def open_page(driver, folder):
    driver.get((folder / "report.html").as_uri())
    wait_until(driver, lambda: driver.execute_script("return document.documentElement.dataset.drawn"))


CELL = """
const plot = arguments[0], [i, j] = [arguments[1], arguments[2]], frame = plot.getBoundingClientRect();
const {xaxis, yaxis} = plot._fullLayout;
return [frame.left + xaxis._offset + xaxis.d2p(j), frame.top + yaxis._offset + yaxis.d2p(i)];
"""


def hover(driver, plot, i, j, *expected):
    """What the label says when the mouse is over cell (i, j), as soon as it says what is expected."""
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)

    def said():
        for shift in (1, 0):  # a mouse that comes from elsewhere
            x, y = driver.execute_script(CELL, plot, i, j)
            driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x + shift, "y": y})
        script = "return arguments[0].querySelector('.hoverlayer .hovertext')?.textContent ?? ''"
        label = squeeze(driver.execute_script(script, plot))
        return all(squeeze(text) in label for text in expected) and label

    return wait_until(driver, said)  # the plot follows the mouse a moment later


def squeeze(text):
    """Without spaces: a label breaks long texts into lines."""
    return "".join(text.split())


def test_every_plot_is_drawn_and_all_sections_are_there(browser):
    plots = browser.find_elements("css selector", ".plot")
    assert len(plots) == 11 and all(plot.find_elements("css selector", "svg.main-svg") for plot in plots)
    headings = [element.text for element in browser.find_elements("css selector", "h2")]
    assert headings == [
        "Scores on the test set",
        "What was trained",
        "How the training went",
        "Positives and negatives",
        "How hard the negatives were",
        "Batches as the model saw them",
        "Wins and mistakes",
        "Pairs that look mislabelled",
    ]
    assert browser.find_elements("css selector", ".heatmaplayer image")


def test_hovering_over_a_cell_shows_its_two_texts(browser, folder):
    seen = read_evidence(folder / "evidence.json").stages[0].snapshots[1]
    plot = browser.find_element("css selector", ".batches .plot")
    label = hover(browser, plot, 2, 5, seen.left[2], seen.right[5])
    assert squeeze(seen.left[2]) in label and squeeze(seen.right[5]) in label and f"{seen.similarity[2][5]:.3f}" in label
    other = hover(browser, plot, 7, 7, seen.left[7], seen.right[7])  # on the diagonal, where a mark lies over the cell
    assert squeeze(seen.left[7]) in other and squeeze(seen.right[7]) in other


def test_mark_up_in_the_texts_stays_text(browser):
    label = hover(browser, browser.find_element("css selector", ".batches .plot"), 3, 4, NASTY)
    assert label.count(squeeze(NASTY)) == 2


def test_a_phone_shows_the_page_without_scrolling_sideways(browser, folder):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_page(browser, folder)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        widths = browser.execute_script("return [...document.querySelectorAll('.plot svg')].map((one) => one.clientWidth)")
        assert max(widths) <= 390
        table = browser.find_element("css selector", ".wide")
        hidden = "return arguments[0].scrollWidth - arguments[0].clientWidth"
        shadow = "return getComputedStyle(arguments[0]).backgroundImage.split('linear-gradient').length - 1"
        assert browser.execute_script(hidden, table) > 0 and browser.execute_script(shadow, table) == 2  # which shows that it is
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_and_print_change_the_ink_of_the_plots(browser):
    ink = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    light = browser.execute_script(ink)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    assert browser.execute_script(ink) != light
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    assert browser.execute_script(ink) == "rgb(0, 0, 0)"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert printed.startswith(b"%PDF") and len(printed) > 50_000
