"""A real server on a free port of this machine, and the plainest client."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from pairtune.serve.matcher import load_matcher
from pairtune.serve.server import make_server, open_socket

CORPUS = [
    "threading.Thread.join(timeout) waits until the thread terminates",
    "os.remove(path) deletes a file",
    "sorted(iterable) returns a new sorted list",
    "json.dumps(obj) turns an object into a JSON string",
    "random.shuffle(x) shuffles a list in place",
    "<script>document.title = 'owned'</script> <b>not bold</b> &amp;",
    "socket.create_connection(address) opens a TCP connection",
    "shutil.copytree(src, dst) copies a whole directory",
]


def write_corpus(folder: Path) -> Path:
    path = folder / "functions.txt"
    path.write_text("\n".join(CORPUS), encoding="utf-8")
    return path


def load_both(tuned: str, folder: Path):
    """The tiny encoder, and beside it, as the original, one that reads four tokens only: other lists, for sure."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(tuned, device="cpu")
    model.max_seq_length = 4
    model.save_pretrained(str(folder / "original"), create_model_card=False)
    return load_matcher(tuned, write_corpus(folder), original=str(folder / "original"))


@contextmanager
def serving(matcher, token: str | None = None, **seconds: float):
    server = make_server(matcher, token=token, **seconds)
    with open_socket("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def ask(url: str, body: object = None, **headers: str) -> tuple[int, dict]:
    """Status and JSON of an answer; bytes are sent as they are."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as problem:
        return problem.code, json.load(problem)
