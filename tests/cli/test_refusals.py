"""Inputs that people and programs get wrong: every one ends in words and status 2, none in a traceback.

All of them are refused before anything is loaded, so that the whole list takes seconds.
"""

from __future__ import annotations

import io
import itertools

import numpy as np
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
    "encoder/modules.json": b"[]",
    "answers.csv": b"left,right,label,correct\n",
    "encoders.toml": b"encoder = ''\n",
}


def lines_of(label, count=60, left="a question about {}", head="left,right,label"):
    rows = (f"{left.format(row)},an answer to {row},{label(row)}\n" for row in range(count))
    return f"{head}\n{''.join(rows)}".encode()


def objects_of(template):
    return "".join(f"{template % (row, row)}\n" for row in range(60)).encode()


def array_of(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def table_of(**columns):
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream)
    return stream.getvalue()


TEXTS_60 = [f"a question about {row}" for row in range(60)]
WRONG_DATA = {  # files of pairs that cannot be meant
    "money.csv": lines_of(lambda row: f"${row % 2}"),
    "huge.csv": lines_of(lambda row: 1e308 if row % 2 else -1e308),
    "above.csv": lines_of(lambda row: 10**30 * (row % 2)),
    "nan.csv": lines_of(lambda row: "nan" if row % 2 else 1),
    "infinite.csv": lines_of(lambda row: "inf" if row % 2 else 1),
    "zeros.csv": lines_of(lambda row: 0),
    "same.csv": lines_of(lambda row: row % 2, left="the same"),
    "few.csv": lines_of(lambda row: row % 2, count=3),
    "headless.csv": lines_of(lambda row: row % 2, head=",,"),
    "quoted.csv": lines_of(lambda row: row % 2, left='"a question that never ends {}'),
    "page.csv": b"<!DOCTYPE html><html><body>404</body></html>",
    "notes.csv": b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 3\n",
    "zipped.csv": b"PK\x03\x04" + b"x" * 100,
    "csv.parquet": lines_of(lambda row: row % 2),
    "csv.xlsx": lines_of(lambda row: row % 2),
    "error.jsonl": b'{"error": "rate limit"}\n',
    "nested.jsonl": objects_of('{"left": {"a": "q%d"}, "right": ["b%d"]}'),
    "lists.jsonl": objects_of('["q%d %d"]'),
    "texts.jsonl": objects_of('"q%d %d"'),
    "truth.jsonl": objects_of('{"left": "q%d", "right": true, "x": %d}'),
    "large.jsonl": objects_of('{"left": "q%d", "right": "b%d", "label": 1e400}'),
    "joined.json": objects_of('{"left": "q%d", "right": "b%d"}').replace(b"\n", b""),
    "comma.json": b'[{"left": "a", "right": "b"},]',
    "comment.json": b'// pairs\n[{"left": "a", "right": "b"}]',
    "bytes.parquet": table_of(left=[text.encode() for text in TEXTS_60], right=TEXTS_60),
    "empty-column.parquet": table_of(left=pa.array([None] * 60, pa.string()), right=TEXTS_60),
    "no-rows.parquet": table_of(left=pa.array([], pa.string()), right=pa.array([], pa.string())),
    "list-column.parquet": table_of(left=[[text] for text in TEXTS_60], right=TEXTS_60),
    "wide.parquet": table_of(**{f"c{column}": [1] for column in range(500)}),
}
WRONG_SCORES = {
    "complex.npy": array_of(np.zeros(60, complex)),
    "objects.npy": array_of(np.array([{}, 1], dtype=object)),
    "letters.npy": array_of(np.array(["a"] * 60)),
    "wide.npy": array_of(np.zeros((30, 2))),
    "number.npy": array_of(np.array(3.0)),
    "commas.txt": b"0,5\n" * 60,
    "two.txt": b"0.5 0.6\n" * 60,
    "head.txt": b"score\n" + b"0.5\n" * 60,
    "infinite.txt": b"1e400\n" * 60,
    "trec.txt": b"q1 Q0 d1 1 0.5 run\n" * 3,
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
    yield from (["train", "--data", name, "--out", "new"] for name in (*WRONG_DATA, "loop.csv", "dangling.csv", "pairs.csv/x"))
    yield from (["metrics", "--scores", name, "--data", "pairs.csv"] for name in WRONG_SCORES)
    own = ["--data", "pairs.csv", "--out", "new"]
    yield from (["train", *own, "--grade", grade] for grade in ("2=1", "=1", "1=nan", "1=inf", "1=high", "1"))
    yield from (["train", *own, "--negative", name] for name in ("left", "right", "none"))
    yield from (["train", *own, "--label", "label", "--negative", "label"], ["train", *own, "--keep-together", "none"])
    yield from (["train", *own, *old] for old in (("--group", "left"), ("--group=left",)))
    yield from ([command, *own[:2], "--model", ""] for command in ("train", "tune", "inspect"))
    yield from (["train", *own, "--set", "encoder="], ["train", *own, "--set", "task=stsb"], ["train", "encoders.toml", *own])
    yield from ([command, "--data", "pairs.csv", "--out", "encoder"] for command in ("train", "tune"))
    yield from (["score", name, "--left", "a", "--right", "b"] for name in ("", " "))
    yield from (["export", "", "--dimension", "8"], ["mine", "", "new.csv", "--data", "texts.csv"])
    yield from (["search", MODEL, "corpus.txt", query] for query in ("", "  "))
    yield from (["search", MODEL, "corpus.txt", "a", "--column", "text"], ["inspect", "--data", "pairs.csv", "--pairs", "-1"])
    yield from (
        ["shuffle", "pairs.parquet", f"out{end}", "--column", "left"] for end in (".csv", ".jsonl", ".xlsx", "/x.parquet")
    )
    yield from (["shuffle", "", "out.parquet", "--column", "left"], ["prepare", "", "out.parquet", "--column", "left"])
    yield from (["prepare", "pairs.parquet", "out.csv", "--column", "left"], ["shuffle", "pairs.parquet", "", "--column", "left"])
    yield ["shuffle", "pairs.parquet", "out.parquet", "--by", "random", "--column", "left"]
    yield from (["mine", "bm25", name, "--data", "texts.csv"] for name in ("texts.csv", "x.doc", ".", "texts.csv/x.csv"))
    yield from (
        ["mine", "bm25", "new.csv", "--data", "texts.csv", *limit.split()]
        for limit in ("--margin nan", "--highest nan", "--count 0", "--count 1000", "--corpus none.txt", "--cross-encoder ./none")
    )
    yield ["mine", "bm25", "corpus.csv", "--data", "texts.csv", "--corpus", "corpus.csv"]
    yield from (["review", name, "--data", "pairs.csv", "--out", name] for name in ("pairs.csv", "answers.csv", "none.csv"))
    yield ["review", "answers.csv", "--data", "pairs.csv", "--out", "pairs.csv"]
    yield from (["report", "deep", "--out", name] for name in ("pairs.csv", "encoder", "x.html"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs")
    for (name, content), ending in itertools.product(FILES.items(), ENDINGS):
        (path / f"{name}.{ending}").write_bytes(content)
    for name, content in (MORE_FILES | WRONG_DATA | WRONG_SCORES).items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    (path / "loop.csv").symlink_to("loop.csv")
    (path / "dangling.csv").symlink_to("nowhere.csv")
    table = {"left": [f"a question about {row}" for row in range(60)], "label": [row % 2 for row in range(60)]}
    parquet.write_table(pa.table(table), path / "pairs.parquet")
    (path / "deep" / "seed-1").mkdir(parents=True)
    for name in ("recipe.json", "record.json"):
        (path / "deep" / "seed-1" / name).write_bytes(FILES["deep"])
    rows = "".join(f"a question about {row},an answer to {row},{row % 2}\n" for row in range(60))
    (path / "pairs.csv").write_text(f"left,right,label\n{rows}")
    (path / "texts.csv").write_text("left,right\n" + "".join(f"a question about {row},an answer to {row}\n" for row in range(60)))
    (path / "corpus.csv").write_text("text\nsomething else\n")
    return path


INPUTS = list(inputs())


def test_there_are_as_many_inputs_as_were_tried():
    assert len(INPUTS) >= 620


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


KEPT = ("pairs.csv", "texts.csv", "corpus.csv", "answers.csv", "pairs.parquet", "encoder/modules.json")


def test_wrong_inputs_have_left_the_users_files_as_they_were(folder, monkeypatch, capsys):
    """Once more, those that name a file of the user as what is written."""
    before = {name: (folder / name).read_bytes() for name in KEPT}
    monkeypatch.chdir(folder)
    for words in INPUTS:
        if len(words) > 2 and words[0] in ("mine", "review", "report", "shuffle", "prepare") and set(words) & set(KEPT):
            with pytest.raises(SystemExit):
                main(words)
    assert {name: (folder / name).read_bytes() for name in KEPT} == before
    capsys.readouterr()


VARIABLES = [
    ({"WORLD_SIZE": "many"}, "the variable WORLD_SIZE is 'many', expected a whole number"),
    ({"WORLD_SIZE": "-1"}, "the variable WORLD_SIZE is '-1', expected a whole number"),
    ({"RANK": "first"}, "the variable RANK is 'first', expected a whole number"),
    ({"LOCAL_RANK": ""}, "the variable LOCAL_RANK is '', expected a whole number"),
    ({"WORLD_SIZE": "2", "RANK": "0"}, "the variable WORLD_SIZE is 2, and MASTER_ADDR and MASTER_PORT are not there"),
    ({"RANK": "1"}, "unknown recipe 'none'"),  # of a single process that is not the first, whatever that is
    ({"PAIRTUNE_TOKEN": "x"}, "unknown recipe 'none'"),
]


@pytest.mark.parametrize(("variables", "told"), VARIABLES, ids=[" ".join(variables) + told[-9:] for variables, told in VARIABLES])
def test_a_wrong_environment_ends_in_words(folder, variables, told, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        main(["train", "none"])
    assert told in capsys.readouterr().err


WORDS = [  # what another mistake further on would hide
    (["train", ""], "unknown recipe ''"),
    (["train", "own/labelled", "--data", "pairs.csv", "--seeds", "1,1"], "each once"),
    (["train", "own/labelled", "--data", "pairs.csv", "--seeds", str(2**32)], "each once and below 2**32"),
    (["train", "--data", "pairs.csv", "--grade", "2=1"], "--grade 2: no pair has that label; the labels are 0, 1"),
    (["train", "--data", "pairs.csv", "--negative", "left"], "column 'left' cannot hold the negatives as well"),
    (["train", "--data", "pairs.csv", "--set", "task=stsb"], "--set task names a dataset, and --data gives your own pairs"),
    (["train", "--data", "pairs.csv", "--out", "encoder"], "encoder is the folder of an encoder"),
    (["tune", "--data", "pairs.csv", "--out", "encoder"], "encoder is the folder of an encoder"),
    (["score", "", "--left", "a", "--right", "b"], "the encoder is '': give a folder"),
    (["search", MODEL, "corpus.txt", " "], "the query is empty"),
    (["search", MODEL, "corpus.txt", "a", "--column", "text"], "this file has one text per line: leave it out"),
    (["metrics", "--scores", "wide.npy", "--data", "pairs.csv"], "an array of shape (30, 2); give one score per pair"),
    (["metrics", "--scores", "complex.npy", "--data", "pairs.csv"], "its numbers are complex"),
    (["mine", "bm25", "texts.csv", "--data", "texts.csv"], "texts.csv is an input file, and its rows would be lost"),
    (["mine", "bm25", "texts.csv", "--data", "t*ts.csv"], "texts.csv is an input file, and its rows would be lost"),
    (["mine", "bm25", "new/../texts.csv", "--data", "texts.csv"], "texts.csv is an input file, and its rows would be lost"),
    (["mine", "bm25", "new.csv", "--data", "texts.csv", "--margin", "nan"], "a margin or limit of mining is nan"),
    (["review", "answers.csv", "--data", "pairs.csv", "--out", "answers.csv"], "answers.csv holds your answers"),
    (["review", "answers.csv", "--data", "pairs.csv", "--out", "made/../answers.csv"], "answers.csv holds your answers"),
    (["shuffle", "pairs.parquet", "out.csv", "--column", "left"], "would hold Parquet, whatever its name says"),
    (["shuffle", "pairs.parquet", "out.parquet", "--by", "random", "--column", "left"], "by random reads no column"),
    (["shuffle", "", "out.parquet", "--column", "left"], "the input has no name"),
    (["report", "deep", "--out", "pairs.csv"], "pairs.csv: the report is a page"),
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
