"""Make the pictures of the docs with a real browser (Debian: chromium, chromium-driver).

python docs/screenshots.py search runs/demo/model     # after `make demo`
python docs/screenshots.py report runs/functions      # after the `pairtune train` of picture_report
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parent / "images"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)


@contextmanager
def open_chromium(width: int, height: int, scale: int = 2) -> Iterator[Any]:
    """A browser without a window, in a profile of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            yield driver
        finally:
            driver.quit()


@contextmanager
def serving(model: str) -> Iterator[str]:
    """The page of a model, with the functions of the standard library as its corpus; its index is kept beside the model."""
    from pairtune import load_task
    from pairtune.serve.matcher import load_matcher
    from pairtune.serve.server import make_server, open_socket

    task = load_task("stdlib")
    functions = dict.fromkeys(text for split in (task.train, task.dev, task.test) for text in split.right)
    corpus = Path(model).parent / "functions.txt"
    corpus.write_text("\n".join(functions), encoding="utf-8")
    server = make_server(load_matcher(model, corpus))
    with open_socket("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def picture_search(model: str = "runs/demo/model") -> None:
    """images/search.png: a search with a tuned model beside the encoder it came from."""
    from selenium.webdriver.support.ui import WebDriverWait

    with serving(model) as url, open_chromium(1200, 800) as browser:
        browser.get(url)
        query = WebDriverWait(browser, 30).until(lambda _: browser.find_element("id", "query"))
        query.send_keys("wait until all threads are done")
        WebDriverWait(browser, 30).until(lambda _: browser.find_elements("css selector", ".card li"))
        time.sleep(1)  # the bars grow
        browser.save_screenshot(str(IMAGES / "search.png"))


def picture_report(run: str = "runs/functions") -> None:
    """images/report.png: the middle of a run's report, from how the training went to the batches.

    pairtune train stdlib/demo --set train.pairs=768 --set train.epochs=4 --set order.by=examples
        --set loss.learn_temperature=true --set loss.temperature_learning_rate=0.01 --out runs/functions
    """
    from selenium.webdriver.support.ui import WebDriverWait

    from pairtune.report.page import write_report

    with tempfile.TemporaryDirectory() as folder, open_chromium(1200, 900, scale=1) as browser:
        browser.get(write_report([Path(run)], Path(folder) / "report.html").as_uri())
        WebDriverWait(browser, 30).until(lambda _: browser.execute_script("return document.documentElement.dataset.drawn"))
        first, last = (browser.find_element("id", name).rect for name in ("training", "batches"))
        clip = {"x": 0, "y": first["y"], "width": 1200, "height": last["y"] + last["height"] - first["y"] + 24, "scale": 1}
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        (IMAGES / "report.png").write_bytes(base64.b64decode(shot["data"]))


PICTURES = {"search": picture_search, "report": picture_report}

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    PICTURES[sys.argv[1]](*sys.argv[2:])
