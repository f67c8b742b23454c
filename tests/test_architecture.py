"""The import direction of docs/architecture.md, held by reading the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pairtune

PACKAGE = Path(pairtune.__file__).parent
LINES = [  # each may import what stands below it, never sideways or up
    ["__main__"],
    ["cli"],
    ["serve", "report"],
    ["tune"],
    ["training"],
    ["stages"],
    ["sbert"],  # of these four, each needs the ones below it
    ["data"],
    ["encoders"],
    ["fast", "engines"],
    ["ordering", "loss", "metrics"],
    ["runs"],
    ["processes"],
    ["errors", "progress", "cache"],
]
LEVEL = {name: level for level, names in enumerate(LINES) for name in names}


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "pairtune"


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and node.module.split(".")[0] == "pairtune":
            names = [f"pairtune.{alias.name}" for alias in node.names] if node.module == "pairtune" else [node.module]
            found.update(part_of(name) for name in names)
        elif isinstance(node, ast.Import):
            found.update(part_of(alias.name) for alias in node.names if alias.name.split(".")[0] == "pairtune")
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: import by full name, not relatively"
    return found


def test_every_module_imports_only_from_below():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for other in imports_of(path) - {part, "__version__"}:
            if LEVEL[other] <= LEVEL[part]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports pairtune.{other}")
    assert not wrong, "\n".join(wrong)


def test_no_two_modules_share_a_name():
    names = Counter(path.stem for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_tests_and_the_page_have_the_rooms_of_the_package():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    tests = Path(__file__).parent
    assert {path.parent.name for path in tests.glob("*/test_*.py")} == rooms
    page = (tests.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)/`", page.split("Beside the package")[0], re.MULTILINE)) == rooms
    order = page.split("## The import rule")[1].split("```")[1].removeprefix("text").split("\n")
    assert [line.split(" · ") for line in order if line] == LINES[1:]


def test_asking_for_help_does_not_import_torch():
    program = "import sys, pairtune, pairtune.cli, pairtune.runs.recipe; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "datasets", "faiss", "duckdb", "transformers"} & set(result.stdout.split())


def test_every_public_name_is_there_and_stays_what_it_is():
    for name in pairtune.__all__:
        assert getattr(pairtune, name) is not None
    from pairtune import train, training

    assert train is training.train  # no module of that name takes its place when it is imported


PUBLIC = {"_exit"}  # os._exit, which the documentation of Python has


def private_names(tree: ast.AST) -> Counter[str]:
    """Names with one underscore that are asked of another object than self, or of the class that ours is made from."""
    asked = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_"))
    foreign = (node.attr for node in asked if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")))
    return Counter(name for name in foreign if not name.startswith("__"))


def test_every_private_name_of_another_package_stands_in_one_table():
    import pairtune.fast

    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    ours = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    overridden = {"_clip_grad_norm", "_load_from_checkpoint", "_save"}  # of the trainer
    used = {name for tree in trees for name in private_names(tree)} - PUBLIC - (ours - overridden) | overridden
    rows = [line for line in (pairtune.fast.__doc__ or "").splitlines() if line.startswith("| `")]
    assert len(used) >= 10 and not [name for name in used if not any(name in row for row in rows)]
    page = (PACKAGE.parents[1] / "docs" / "extending" / "encoder.md").read_text(encoding="utf-8")
    assert f"It has {len(rows)} rows" in page
