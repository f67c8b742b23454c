"""A real Chromium without a window, and what must hold of every page that it opens."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,900"
)
needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver") and find_spec("selenium")),
    reason="needs chromium and chromedriver (Debian: chromium, chromium-driver) and selenium (pip install 'pairtune[dev]')",
)
NEVER = 86_400  # seconds: no page is late, however busy the machine


@contextmanager
def open_chromium():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        driver.set_page_load_timeout(NEVER)
        try:
            yield driver
        finally:
            driver.quit()


def wait_until(driver, condition):
    """What the condition returns once it is true; an element that was replaced meanwhile is looked for again."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, NEVER, ignored_exceptions=[StaleElementReferenceException]).until(lambda _: condition())


def forget(driver) -> None:
    """An empty page and empty logs."""
    driver.get("about:blank")
    driver.get_log("performance")
    driver.get_log("browser")


def assert_only_this_machine_was_asked(driver) -> None:
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked and all(one.startswith(("http://127.0.0.1:", "file:", "data:", "about:")) for one in asked), asked


def assert_no_errors(driver, besides: str | None = None) -> None:
    lines = [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert not [line for line in lines if besides is None or besides not in line], lines
