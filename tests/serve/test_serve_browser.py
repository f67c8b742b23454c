"""The page in a real browser: it searches, scores, escapes, asks for the token, and asks no other machine."""

from __future__ import annotations

import pytest

from browsing import assert_no_errors, assert_only_this_machine_was_asked, forget, needs_chromium, open_chromium, wait_until
from serving import CORPUS, serving

pytest.importorskip("fastapi", reason="pip install 'pairtune[serve]'")
pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def chromium():
    with open_chromium() as driver:
        yield driver


@pytest.fixture
def browser(chromium):
    """The browser, with empty logs; afterwards nothing was asked of others and nothing went wrong unnoticed."""
    forget(chromium)
    yield chromium
    assert_only_this_machine_was_asked(chromium)
    assert_no_errors(chromium, besides="401 (Unauthorized)")  # the browser's own line about the token


def texts(driver, selector: str) -> list[str]:
    return [element.text for element in driver.find_elements("css selector", selector)]


def wait_for(driver, selector: str, many: int = 1):
    return wait_until(
        driver,
        lambda: (
            len(found := driver.find_elements("css selector", selector)) >= many
            and all(e.is_displayed() for e in found)
            and found
        ),
    )


def wait_for_text(driver, selector: str, part: str) -> list[str]:
    """The texts of the elements once one of them has the part in it."""
    return wait_until(driver, lambda: (found := texts(driver, selector)) and any(part in text for text in found) and found)


def test_typing_a_text_shows_both_lists_best_first(browser, url, both):
    from selenium.webdriver.common.keys import Keys

    browser.get(url)
    wait_for(browser, "#query").pop().send_keys("remove a file", Keys.ENTER)
    wait_for(browser, "#found article", 2)
    assert texts(browser, "#found h2")[0].startswith("Tuned") and texts(browser, "#found h2")[1].startswith("Original")
    for one, loaded in zip(("tuned", "original"), both.models, strict=True):
        cosines = loaded.model.similarity(loaded.model.encode(["remove a file"]), loaded.model.encode(CORPUS))[0]
        expected = [CORPUS[place] for place in cosines.argsort(descending=True)]
        assert texts(browser, f".{one} .text") == expected
        assert texts(browser, f".{one} .score")[0].startswith(f"{cosines.max():.3f}")
    assert "of 8 texts" in browser.find_element("id", "search-status").text


def test_the_address_keeps_the_query_and_asks_it_again(browser, url):
    browser.get(url)
    wait_for(browser, "#query").pop().send_keys("remove a file & <b>100 %</b>")
    wait_for(browser, "#found article", 2)
    browser.execute_script(
        "document.getElementById('top').value = '5'; document.getElementById('top').dispatchEvent(new Event('change'))"
    )
    wait_until(browser, lambda: len(texts(browser, ".tuned li")) == 5)
    kept, found = browser.current_url, texts(browser, ".tuned li")
    forget(browser)
    browser.get(kept)
    assert wait_until(browser, lambda: texts(browser, ".tuned li") == found)
    assert browser.find_element("id", "query").get_property("value") == "remove a file & <b>100 %</b>"
    browser.execute_script("location.hash = '#q=copy'")  # as of a link to this page
    wait_until(browser, lambda: browser.find_element("id", "query").get_property("value") == "copy")
    browser.execute_script("document.getElementById('query').value = ''")
    browser.find_element("css selector", "#search-form .go").click()
    wait_until(browser, lambda: browser.current_url == f"{url}/")


LATE = """
const asked = window.fetch;
window.fetch = (path, rest) => path !== "api/about" ? asked(path, rest)
  : new Promise((resolve) => setTimeout(resolve, 1500)).then(() => asked(path, rest));
"""


def test_a_text_typed_before_the_server_has_said_what_it_serves_is_searched(browser, url):
    from selenium.webdriver.common.keys import Keys

    late = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LATE})
    try:
        browser.get(url)
        wait_for(browser, "#query").pop().send_keys("remove a file", Keys.ENTER)
        wait_for(browser, "#found article", 2)
        assert "of 8 texts" in browser.find_element("id", "search-status").text
        assert "8 texts of" in browser.find_element("id", "served").text
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", late)


def test_markup_in_the_corpus_stays_text(browser, url):
    browser.get(url)
    wait_for(browser, "#query").pop().send_keys("document title script")
    assert len(wait_for_text(browser, ".tuned .text", CORPUS[5])) == len(CORPUS)
    assert browser.title == "pairtune" and not browser.find_elements("css selector", ".text b, .text script")


def test_two_texts_are_scored_from_the_keyboard_alone(browser, url, both):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get(url)
    wait_for(browser, "#query:focus")
    keys = ActionChains(browser)
    keys.key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT, Keys.TAB, "a red car", Keys.TAB)
    keys.send_keys("a crimson automobile").key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    wait_for(browser, ".gauge strong", 2)
    left, right = both.models[0].model.encode(["a red car", "a crimson automobile"])
    assert texts(browser, ".gauge strong")[0] == f"{both.models[0].model.similarity(left, right).item():.3f}"


def test_a_pasted_list_is_scored_and_a_line_that_is_no_pair_is_named(browser, url):
    browser.get(url)
    wait_for(browser, "#tab-list").pop().click()
    lines = browser.find_element("id", "lines")
    browser.execute_script("arguments[0].value = 'a cat\\ta dog\\n\\none | two\\nalone'", lines)
    button = browser.find_element("css selector", "#list .go")
    button.click()
    wait_for(browser, "#list-status.bad")
    assert browser.find_element("id", "list-status").text.startswith("line 4 is no pair")
    browser.execute_script("arguments[0].value = 'a cat\\ta dog\\n\\none | two'", lines)
    button.click()
    wait_for(browser, "#table tbody tr", 2)
    assert [row.split()[2:] for row in texts(browser, "#table tbody tr")] == [["a", "cat", "a", "dog"], ["one", "two"]]
    browser.find_element("id", "against").send_keys("the cat")
    browser.execute_script("arguments[0].value = 'an aeroplane\\na cat'", lines)
    button.click()
    wait_for(browser, "#table th:nth-child(3):last-child")
    assert texts(browser, "#table tbody td:last-child") == ["a cat", "an aeroplane"]  # ranked


def test_the_page_asks_for_the_token_until_it_is_right(browser, both):
    from selenium.webdriver.common.keys import Keys

    with serving(both, token="correct-horse") as url:
        browser.get(url)
        wait_for(browser, "#ask[open] #token").pop().send_keys("wrong", Keys.ENTER)
        wait_for_text(browser, "#ask-hint", "That was not it")
        wait_for(browser, "#ask[open] #token").pop().send_keys("correct-horse", Keys.ENTER)
        wait_for(browser, "#query").pop().send_keys("remove a file", Keys.ENTER)
        assert len(wait_for(browser, ".tuned li", len(CORPUS))) == len(CORPUS)
        browser.execute_script("sessionStorage.clear()")


def test_the_description_page_lists_the_routes_and_tries_one(browser, url):
    browser.get(f"{url}/docs")
    wait_for(browser, "article", 3)
    routes = [title.replace(" ", "") for title in texts(browser, "article h2")]
    assert routes == ["GET/api/about", "POST/api/search", "POST/api/score"]
    browser.find_elements("css selector", "article button")[2].click()
    assert wait_for_text(browser, "article:nth-child(3) pre", '"scores"')[0].startswith("200")


def test_the_page_fits_a_phone(browser, url):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        browser.get(url)
        wait_for(browser, "#query").pop().send_keys("remove a file")
        articles = wait_for(browser, "#found article", 2)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        tuned, original = (article.rect for article in articles)
        assert tuned["y"] == original["y"] and tuned["x"] + tuned["width"] < original["x"]  # side by side, to compare
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
