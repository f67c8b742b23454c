"""The documentation is executed: every block of code of the README and of every page, in order; and the site is built."""

from __future__ import annotations

import contextlib
import csv
import doctest
import importlib
import importlib.util
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from pairtune.cli import app
from pairtune.report.reference import make_settings_page, setting_grids
from pairtune.runs.recipe import AdapterSettings, LossSettings, OrderSettings, Recipe, TrainSettings
from pairtune.runs.toml import make_recipe, read_recipe, shipped_recipes
from pairtune.tune.rules import MANY_PAIRS, RULES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "bash", "toml", "json", "text", "console"}
COMMANDS = typer.main.get_command(app).commands

# Parsed with the real command line, every option checked, but not run: what it would take.
NOT_RUN = {
    "demo": "minutes: make demo is part of the continuous integration",
    "tune": "a minute each: tests/cli/test_tuning.py and tests/tune/test_tuner.py",
    "export": "needs another runtime: tests/encoders/test_export.py",
}
if importlib.util.find_spec("pyspark") is None:
    NOT_RUN["--engine spark"] = "needs PySpark: the continuous integration installs it and runs this page again"
QUICK = {
    "train": ["--set", "train.epochs=1", "--set", "train.pairs=64"],
    "inspect": ["--pairs", "100", "--no-trial"],
}

MODULES_WITH_EXAMPLES = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix().removeprefix("docs/"))


@cache
def tokens(page):
    """All tokens of a page, those inside paragraphs and cells too."""
    found = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    return [one for token in found for one in (token, *(token.children or ()))]


def blocks(page):
    return [(token.info.strip(), token.content) for token in tokens(page) if token.type == "fence"]


def inline_code(page):
    return [token.content for token in tokens(page) if token.type == "code_inline"]


def command_lines(block):
    """The commands of a block, continued lines joined, comments left out."""
    joined = re.sub(r"\\\n\s*", " ", block)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def write_samples(folder):
    """The files that the pages speak of: pairs as a table, texts to search, a folder of Parquet."""
    import pandas

    rows = [
        row
        for number in range(50)
        for row in (
            (f"how do I cook dish {number}", f"heat dish {number} for an hour", 1),
            (f"how do I cook dish {number}", f"train {number} leaves at noon", 0),
        )
    ]
    with (folder / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "answer", "score"), *rows])
    (folder / "answers.txt").write_text("put it in hot water\nleave the train\n", encoding="utf-8")
    (folder / "pairs").mkdir()
    pandas.DataFrame(rows, columns=["question", "answer", "score"]).to_parquet(folder / "pairs" / "0.parquet")


def run_python(block, namespace, encoder):
    exec(compile(re.sub(r"\bminilm\b", encoder, block), "<block>", "exec"), namespace)


def run_command(line, encoder):
    """Run a `pairtune` command in this process, on little data; those in NOT_RUN are parsed only."""
    words = shlex.split(re.sub(r"\bminilm\b", encoder, line), comments=True)[1:]
    name = words[0]
    assert name in COMMANDS, f"there is no command {name!r}: {line}"
    COMMANDS[name].make_context(name, words[1:]).close()
    if name in NOT_RUN or any(f" {part} " in line for part in NOT_RUN if part.startswith("--")):
        return
    if name == "serve":
        return serve_until_it_answers(words, encoder)
    own_encoder = {"train": ["--model", encoder], "inspect": ["--set", f"encoder={encoder}"]}
    result = CliRunner().invoke(app, [*words, *QUICK.get(name, ()), *own_encoder.get(name, ())])
    assert result.exit_code == 0, f"{line}: {result.output}{result.exception!r}"
    assert result.output.strip(), f"{line} printed nothing"


def serve_until_it_answers(words, encoder):
    """A server does not return: it is asked for its page and stopped. Only this machine may reach it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    own = {"runs/demo/model": encoder, "0.0.0.0": "127.0.0.1"}
    command = [sys.executable, "-m", "pairtune", *(own.get(word, word) for word in words), "--port", port]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while True:
            assert server.poll() is None, server.stderr.read()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
                assert "pairtune" in page.read().decode()
                return
            time.sleep(0.1)
    finally:
        server.terminate()
        server.communicate()


def check_other_command(line):
    """What a page may ask for besides `pairtune`: a target of the Makefile, a script, an extra, a cluster."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), f"no such target: {line}"
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), f"there is no {words[1]}: {line}"
        options = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
        assert all(option in (ROOT / words[1]).read_text() for option in options), f"unknown option: {line}"
    elif words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        named = [extra.strip() for group in re.findall(r"\[(.+?)\]", line) for extra in group.split(",")]
        assert set(named) <= set(extras), f"unknown extra: {line}"
    elif words[0] in ("torchrun", "accelerate"):  # tests/sbert/test_processes.py runs such commands
        name, *rest = words[words.index("pairtune") + 1 :]
        COMMANDS[name].make_context(name, rest).close()
    else:
        assert words == ["source", ".venv/bin/activate"] or words[0] == "spark-submit", f"a command that no test knows: {line}"


@by_page
def test_the_blocks_of_a_page_run_in_the_order_they_are_shown(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    write_samples(tmp_path)
    namespace = {"__name__": "page"}
    encoder = request.getfixturevalue("tiny_encoder") if any(kind in ("python", "bash") for kind, _ in blocks(page)) else ""
    for kind, block in blocks(page):
        if kind == "python":
            run_python(block, namespace, encoder)
        elif kind == "toml":
            make_recipe({"name": "block", **tomllib.loads(block)})
        elif kind == "bash":
            for line in command_lines(block):
                run_command(line, encoder) if line.startswith("pairtune ") else check_other_command(line)


@by_page
def test_every_block_of_a_page_says_what_it_is(page):
    unmarked = [token.content for token in tokens(page) if token.type == "code_block"]
    assert not unmarked, "fence it and name its language, so that it is executed (or ```text)"
    assert {kind for kind, _ in blocks(page)} <= LANGUAGES
    if page.name != "cli.md":
        assert not [block for kind, block in blocks(page) if kind in ("text", "console") and re.match(r"\$? ?pairtune \w", block)]


@by_page
def test_every_link_of_a_page_leads_somewhere(page):
    targets = [token.attrGet("href") or token.attrGet("src") for token in tokens(page) if token.type in ("link_open", "image")]
    for target in targets:
        if not re.match(r"(https?:|#|mailto:)", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


@by_page
def test_every_command_and_file_that_a_page_names_is_there(page):
    for code in inline_code(page):
        if match := re.match(r"pairtune ([a-z]+)(.*)", code):
            known = {option for parameter in COMMANDS[match[1]].params for option in parameter.opts}
            assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", match[2])) <= {*known, "--help", "-h"}, code
        if re.match(r"(recipes|results|benchmarks|tests|examples|src)/[\w./-]+$", code):
            assert (ROOT / code).exists(), code
        folder, slash, rest = code.partition("/")
        if folder and slash and rest and (ROOT / "recipes" / folder).is_dir():
            assert code in shipped_recipes(), code


def test_the_table_to_decide_by_says_what_the_rules_and_their_recipes_do():
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")][2:]
    assert [row[1].strip("`") for row in rows] == [rule.recipe for rule in RULES]
    for (_, name, loss, order, temperature), rule in zip(rows, RULES, strict=True):
        (stage,) = read_recipe(rule.recipe).stages
        said = [stage.loss.kind, *((stage.loss.pointwise, f"mix {stage.loss.mix:g}") if stage.loss.kind == "combo" else ())]
        assert all(word in loss for word in said) and f"`{stage.order.by}`" in order, name
        assert temperature == (f"{stage.loss.temperature:g}" if stage.loss.kind in ("bsc", "combo") else "–"), name
        train = f"{stage.train.epochs} epochs, batches of {stage.train.batch_size}, peak learning rate"
        assert f"{train} {stage.train.learning_rate:.0e}".replace("e-0", "e-") in page, name
    assert f"Above {MANY_PAIRS:,} pairs" in page


def test_the_pages_about_adding_something_name_places_that_are_there():
    named = r"`(\w+)` (?:of `(\w+)` )?in `((?:src|tests)/[\w./]+\.py)`"
    pages = [page for page in PAGES if page.parent.name == "extending"]
    places = [place for page in pages for place in re.findall(named, page.read_text(encoding="utf-8"))]
    assert len(places) >= 15
    for name, owner, path in places:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"\b{name}\b", source) and re.search(rf"\b{owner}\b", source), (name, owner, path)


def test_the_page_of_the_command_line_is_what_typer_generates():
    command = [sys.executable, "-m", "typer", "pairtune.cli", "utils", "docs", "--name", "pairtune", "--title", "Command line"]
    made = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONUTF8": "1"}).stdout
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert made.strip() == page.strip(), "the command line has changed: make docs writes docs/reference/cli.md again"


def test_the_page_of_settings_is_current_and_explains_each_of_them_once():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == make_settings_page(), "the settings have changed: make docs writes docs/reference/settings.md again"
    rows = [row for grid in setting_grids() for row in grid.rows]
    assert all(all(row) for row in rows)
    models = {"": Recipe, "loss.": LossSettings, "order.": OrderSettings, "train.": TrainSettings, "adapter.": AdapterSettings}
    fields = [(part, name) for part, model in models.items() for name in model.model_fields]
    names = [f"`{part}{name}`" for part, name in fields if name not in ("stages", "adapter")]
    assert sorted(row[0] for row in rows) == sorted([*names, "`stages.select`"])


def documented_names():
    """What the page of the API asks mkdocstrings to show."""
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    shown = set()
    for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page, flags=re.MULTILINE):
        members = re.search(r"members: \[(.+)\]", options)
        shown |= {f"{name}.{member}" for member in members[1].split(", ")} if members else {name}
    return shown


def test_every_public_name_is_on_the_page_of_the_api():
    import pairtune

    assert {f"{getattr(pairtune, name).__module__}.{name}" for name in pairtune.__all__} <= documented_names()


def test_every_function_that_the_equations_name_is_on_the_page_of_the_api():
    functions = [code for code in inline_code(ROOT / "docs" / "equations.md") if re.match(r"(loss|sbert)\.\w+\.\w+", code)]
    assert len(functions) >= 8
    for code in functions:
        name = "pairtune." + code.partition("(")[0]
        thing = getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
        assert name in documented_names() or isinstance(thing, dict), name


@pytest.mark.parametrize("path", MODULES_WITH_EXAMPLES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_the_examples_in_the_docstrings_of_a_module_are_true(path):
    assert "+SKIP" not in path.read_text(encoding="utf-8"), "an example that is not run may be wrong"
    module = importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    said = io.StringIO()
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder().find(module):
        runner.run(example, out=said.write)
    assert runner.summarize(verbose=False).failed == 0, said.getvalue()


class Requests(HTMLParser):
    """What a browser would fetch from elsewhere on its own while it shows a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        wanted = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
        self.found += [value for name, value in attrs if wanted.get(tag) == name and re.match(r"(https?:)?//", value or "")]


def test_the_site_builds_without_a_warning_and_asks_nothing_of_other_machines(tmp_path):
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("needs mkdocs: make docs installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0 and "WARNING" not in result.stderr, result.stderr
    built = list((tmp_path / "site").rglob("*.html"))
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages <= {path.relative_to(tmp_path / "site") for path in built}
    for path in built:
        page = Requests()
        page.feed(path.read_text(encoding="utf-8"))
        assert not page.found, (path.name, page.found)
    for path in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path.name
    api = (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")
    assert documented_names() <= set(re.findall(r'id="(pairtune\.[\w.]+)"', api))
