"""Inputs that people and programs get wrong: every one ends in words and status 2, none in a traceback.

All of them are refused before anything is loaded, so that the whole list takes seconds.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from pyarrow import parquet

from pairtune.cli import main

LONG = "x" * 300
FILES = {  # what is in the files that the commands are given
    "empty": b"",
    "blank": b"\n\n\n",
    "binary": bytes(range(256)) * 20,
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deeper": b'{"left": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "half": b'{"left": "a", "rig',
    "number": b"5\n",
    "null": b"null\n",
    "list": b"[1, 2]\n",
    "header": b"left,right,label\n",
    "ragged": b"left,right,label\na,b\nc,d,1,2,3\n",
    "twice": b"left,left,right\na,b,c\n",
    "dates": b"left,right,label\n" + b"".join(b"a%d,b%d,2024-01-02T03:04:05\n" % (i, i) for i in range(30)),
    "words": b"left,right,label\n" + b"".join(b"a%d,b%d,maybe%d\n" % (i, i, i) for i in range(30)),
}
MORE_FILES = {
    "corpus.txt": b"a\nb\n",
    "one.csv": b"left,right,label\na,b,1\n",
    "words.txt": b"\n".join([b"high"] * 60),
    "nan.txt": b"\n".join([b"nan"] * 60),
    "three.txt": b"1\n2\n3\n",
    "encoder.toml": b"encoder = 3\n",
    "table.toml": b"stages = {}\n",
    "stage.toml": b"[[stages]]\n[stages.loss]\nkind = 'bsc'\n[[stages]]\nloss = 3\n",
    "date.toml": b"seeds = 2024-01-01\n",
    "rate.toml": b"[train]\nlearning_rate = nan\n",
    "prompts.toml": b"prompts = {left = 3, up = 'x'}\n",
    "ignore.toml": b"ignore = ['(']\n",
    "utf16.toml": "name = 'x'\n".encode("utf-16"),
}
ENDINGS = ("csv", "tsv", "jsonl", "json", "parquet", "toml", "txt")
PATHS = ("", ".", "..", "~", "none", "./none.csv", LONG, f"{LONG}.csv", f"{LONG}.toml", "[/x]", "a\ud800b.csv", "%s", "-")
RECIPES = (
    "",
    ".",
    "..",
    "../..",
    "/",
    "own",
    "own/",
    "/own/labelled",
    "own/labelled.toml",
    LONG,
    f"{LONG}.toml",
    "[/x]",
)
SETTINGS = (
    "",
    "=",
    "a",
    "a=1",
    "a.b.c=1",
    "loss=3",
    "loss.kind=",
    "loss.kind=best",
    "loss.temperature=0",
    "loss.temperature=-1",
    "loss.temperature=nan",
    "loss.temperature=inf",
    "loss.temperature=hot",
    "loss.mix=2",
    "stages=[]",
    "stages=3",
    "stages=[1]",
    "name=..",
    "name=../x",
    "name=a/../b",
    "name=.hidden",
    "name=a b",
    'name=""',
    "name=[]",
    "seeds=[]",
    "seeds=[-1]",
    f"seeds=[{2**32}]",
    "seeds=one",
    f"train.batch_size={2**70}",
    "train.batch_size=0",
    f"train.epochs={10**9}",
    "train.epochs=0",
    "train.epochs=1.5",
    "train.learning_rate=0",
    "train.learning_rate=1e999",
    "train.splits=+",
    "train.columns=[]",
    "train.columns=['a', 'b', 'c', 'd', 'e']",
    "order.by=size",
    "order.group=0",
    "order.margin=9",
    "select=worst",
    "dev=none",
    "ignore=x",
    "loss.normalise=l2",
    "train.rate=1",
)
SHUFFLES = ("--by size", "--group-size 0", "--shingle 0", "--memory much", "--engine none", "--prepared none", "--column none")
LIMITS = ("--minutes -1", "--minutes nan", "--minutes inf", "--minutes 0", "--jobs 0", "--jobs -1", "--trainings 0")
BROKEN = "\udcff"  # what Python makes of a byte that is not UTF-8
SEEDS = ("", ",", "1,", "1,1", "-1", "one", "1.5", str(2**32), "1;2")
MODEL = "./no-such-model"


def inputs():
    yield from (["train", name] for name in RECIPES)
    yield from (["recipes", name] for name in RECIPES)
    yield from (["inspect", name] for name in RECIPES)
    yield from (["train", "own/labelled", "--data", "pairs.csv", "--set", setting] for setting in SETTINGS)
    yield from (["inspect", "own/labelled", "--data", "pairs.csv", "--set", setting] for setting in SETTINGS)
    yield from (["train", "own/labelled", "--data", "pairs.csv", "--seeds", seeds] for seeds in SEEDS)
    yield from (["train", "--data", path] for path in PATHS)
    yield from (["inspect", "--data", path] for path in PATHS)
    yield from (["metrics", path] for path in PATHS)
    yield from (["score", MODEL, path] for path in PATHS)
    yield from (["search", MODEL, path, "a query"] for path in PATHS)
    yield from (["evaluate", MODEL, "--data", path] for path in PATHS)
    yield from (["evaluate", MODEL, name] for name in ("", "..", "none", LONG))
    yield from (["report", path] for path in PATHS)
    yield from (["shuffle", path, "out.parquet", "--column", "left"] for path in PATHS)
    yield from (["prepare", path, "out.parquet", "--column", "left"] for path in PATHS)
    names = [f"{name}.{ending}" for name, ending in itertools.product(FILES, ENDINGS)]
    yield from (["train", "--data", name, "--label", "label"] for name in names)
    yield from (["metrics", name] for name in names)
    yield from (["train", name] for name in names if name.endswith(".toml") and name[:5] not in ("empty", "blank"))
    yield from (["shuffle", name, "out.parquet", "--column", "left"] for name in names if name.endswith(".parquet"))
    yield from (["serve", MODEL, "--port", port] for port in ("-1", "65536", "99999", "http"))
    yield from (["serve", MODEL, "--token", token] for token in ("", "short", "with space here", "ümläutümläut"))
    yield from (["serve", MODEL, "--host", host] for host in ("0.0.0.0", "::", "192.0.2.1", "no host"))
    yield from (["train", name, "--data", "pairs.csv"] for name in MORE_FILES if name.endswith(".toml"))
    yield from (["train", "--data", name] for name in ("hub:", "hub:/", "**", "[a-", "http://x/y.csv", "s3://b/k", "one.csv"))
    yield from (
        ["metrics", "--scores", name, "--data", "pairs.csv"] for name in ("words.txt", "nan.txt", "three.txt", "none", ".")
    )
    yield from (["shuffle", "pairs.parquet", "out.parquet", "--column", "left", *given.split()] for given in SHUFFLES)
    yield from (["tune", "--data", "pairs.csv", "--out", "tuned", *given.split()] for given in LIMITS)
    yield from (["serve", MODEL, "--column", "left"], ["export", MODEL], ["export", MODEL, "out", "--onnx", "--openvino"])
    yield from (["score", MODEL, "--left", left, "--right", right] for left, right in (("a", BROKEN), (BROKEN, "a"), (" ", "a")))
    yield from (["search", MODEL, "corpus.txt", BROKEN], ["search", MODEL, "corpus.txt", "a", "--top", "0"])
    yield from (
        ["train", "own/labelled", "--data", "pairs.csv", "--out", BROKEN],
        ["recipes", "own", "--settings"],
        ["tasks", "x"],
    )
    yield from (["train", "own/labelled", "--data", "pairs.csv", "--out", "deep", *how] for how in ((), ("--resume",)))
    yield ["report", "deep"]
    yield from ([command] for command in ("train", "score", "search", "evaluate", "report", "shuffle", "none", "--none"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs")
    for (name, content), ending in itertools.product(FILES.items(), ENDINGS):
        (path / f"{name}.{ending}").write_bytes(content)
    for name, content in MORE_FILES.items():
        (path / name).write_bytes(content)
    table = {"left": [f"a question about {row}" for row in range(60)], "label": [row % 2 for row in range(60)]}
    parquet.write_table(pa.table(table), path / "pairs.parquet")
    (path / "deep" / "seed-1").mkdir(parents=True)
    for name in ("recipe.json", "record.json"):
        (path / "deep" / "seed-1" / name).write_bytes(FILES["deep"])
    rows = "".join(f"a question about {row},an answer to {row},{row % 2}\n" for row in range(60))
    (path / "pairs.csv").write_text(f"left,right,label\n{rows}")
    return path


INPUTS = list(inputs())


def test_there_are_as_many_inputs_as_were_tried():
    assert len(INPUTS) >= 520


def shown(words):
    return " ".join(word[:30] for word in words).encode("ascii", "replace").decode()


@pytest.mark.parametrize("words", INPUTS, ids=shown)
def test_a_wrong_input_ends_in_words(folder, words, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr()
    assert end.value.code == 2, (said.out, said.err)
    assert said.err.strip() and "Traceback" not in said.err


WORDS = [  # what another mistake further on would hide
    (["train", ""], "unknown recipe ''"),
    (["train", "own/labelled", "--data", "pairs.csv", "--seeds", "1,1"], "each once"),
    (["train", "own/labelled", "--data", "pairs.csv", "--out", BROKEN], "is not valid UTF-8"),
    (["train", "own/labelled", "--data", "pairs.csv", "--out", "deep"], "nested too deeply"),
    (["train", "own/labelled", "--data", "pairs.csv", "--set", "loss.kind=mse", "--set", "loss.temperature=1"], "nothing reads"),
    (["score", MODEL, "--left", "a", "--right", BROKEN], "right '\\udcff' is not valid UTF-8"),
    (["search", MODEL, "corpus.txt", BROKEN], "query '\\udcff' is not valid UTF-8"),
    (["score", "./no-😀/model", "--left", "a", "--right", "b"], "'./no-😀/model' could not be loaded: there is no such folder"),
    (
        ["train", "own/labelled", "--data", "pairs.csv", "--model", "./no-😀/model"],
        "'./no-😀/model' could not be loaded: there is",
    ),
]


@pytest.mark.parametrize(("words", "told"), WORDS, ids=[shown(words) for words, _ in WORDS])
def test_a_wrong_input_is_told_as_what_it_is(folder, words, told, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert told in capsys.readouterr().err
