"""The JSON API on a real server: what it answers, what it refuses, what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tokenizers import Regex, normalizers
from transformers import PreTrainedTokenizerFast

from pairtune.errors import UserError
from serving import CORPUS, ask, serving, write_corpus

pytest.importorskip("fastapi", reason="pip install 'pairtune[serve]'")

from pairtune.serve import matcher, server
from pairtune.serve import requests as limits
from pairtune.serve.matcher import Batcher

QUERY = "remove a file"


@pytest.fixture(scope="module")
def guarded(both):
    with serving(both, token="correct-horse") as url:
        yield url


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def speak(url: str, raw: bytes) -> bytes:
    """Send bytes as they are; all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port_of(url))) as connection:
        connection.sendall(raw)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def test_a_search_ranks_the_corpus_as_the_encoders_do_on_their_own(url, both):
    status, answer = ask(f"{url}/api/search", {"text": QUERY, "top": 3})
    assert status == 200 and [one["model"] for one in answer["models"]] == ["tuned", "original"]
    for one, loaded in zip(answer["models"], both.models, strict=True):
        cosines = loaded.model.similarity(loaded.model.encode([QUERY]), loaded.model.encode(CORPUS))[0].numpy()
        best = np.argsort(-cosines)[:3]
        assert [match["text"] for match in one["matches"]] == [CORPUS[place] for place in best]
        np.testing.assert_allclose([match["score"] for match in one["matches"]], cosines[best], atol=1e-5)
    assert answer["models"][0]["matches"] != answer["models"][1]["matches"]


def test_a_list_of_pairs_gets_the_cosine_of_each_in_order(url, both):
    pairs = [{"left": left, "right": right} for left in CORPUS for right in CORPUS]  # several turns of the encoder
    status, answer = ask(f"{url}/api/score", {"pairs": pairs})
    model = both.models[0].model
    assert status == 200
    expected = model.similarity(model.encode(CORPUS), model.encode(CORPUS)).numpy().ravel()
    np.testing.assert_allclose(answer["models"][0]["scores"], expected, atol=1e-5)


def test_questions_asked_at_once_get_their_own_answers(url):
    def best(text: str) -> str:
        return ask(f"{url}/api/search", {"text": text, "top": 1})[1]["models"][0]["matches"][0]["text"]

    with ThreadPoolExecutor(16) as clients:
        assert list(clients.map(best, CORPUS * 8)) == CORPUS * 8


def test_the_description_names_every_route_and_the_pages_ask_no_other_machine(url):
    paths = ask(f"{url}/openapi.json")[1]["paths"]
    assert set(paths) == {"/api/about", "/api/search", "/api/score"}
    for page in ("/", "/docs"):
        with urllib.request.urlopen(url + page) as answer:
            html, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
        assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", html)


@pytest.mark.parametrize(
    ("body", "where", "given", "expected"),
    [
        ({"text": "a", "top": 0}, "body.top", "0", "greater than or equal to 1"),
        ({"text": "a", "top": 101}, "body.top", "101", "less than or equal to 100"),
        ({"text": "  "}, "body.text", "  ", "should match pattern"),
        ({"txt": "a"}, "body.text", "{'txt': 'a'}", "Field required"),
        ({"text": "x" * 1_000_000}, "body.text", "x" * 80 + "… (1,000,000 characters)", "at most 100000 characters"),
        (b'{"text": "\\ud800"}', "body.text", "\\ud800", "unicode"),
        (b'{"text": "a", "top": NaN}', "body.top", "nan", "finite number"),
        (b"{", "body", "{", "JSON: Expecting property name enclosed in double quotes at character 1"),
        (b'{"text": a}', "body", '{"text": a}', "JSON: Expecting value at character 9"),
    ],
)
def test_a_body_that_is_not_as_expected_is_refused_with_what_was_given(url, body, where, given, expected):
    status, answer = ask(f"{url}/api/search", body)
    assert status == 422
    first = answer["problems"][0]
    assert (first["where"], first["given"]) == (where, given) and expected in first["expected"]
    assert answer["given"] == first["given"] and answer["expected"] == first["expected"]


def test_a_body_nested_a_million_deep_is_refused(url):
    status, answer = ask(f"{url}/api/search", b"[" * 1_000_000)
    assert (status, answer["error"]) == (400, "the body cannot be read") and answer["expected"] == "JSON in UTF-8; see /docs"


def test_a_body_that_is_no_text_is_refused(url):
    status, answer = ask(f"{url}/api/search", b'{"text": "\xff\xfe"}')
    assert (status, answer["given"]) == (400, "no JSON, or nested too deep")


def test_a_body_over_the_limit_is_refused_whatever_its_length_was_said_to_be(url):
    large = b'{"text": "' + b"x" * limits.MOST_BYTES + b'"}'
    status, answer = ask(f"{url}/api/search", large)
    assert status == 413 and answer["expected"] == "at most 1,048,576 bytes"
    head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    assert speak(url, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 20 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert speak(url, head + b"Content-Length: 99999999999\r\n\r\n").startswith(b"HTTP/1.1 413")
    # fewer bytes than were announced, then more than were: the first waits, the second is another request, a bad one
    assert speak(url, head + b"Content-Length: 2\r\n\r\n{}GARBAGE\r\n\r\n").count(b"HTTP/1.1 4") == 2


def test_an_unknown_route_and_method_are_refused_in_json(url):
    assert ask(f"{url}/api/nothing")[0] == 404
    status, answer = ask(f"{url}/api/search")
    assert status == 405 and answer["given"] == "GET /api/search" and answer["expected"] == "see /docs"


def test_a_page_elsewhere_that_points_its_own_name_here_is_turned_away(url):
    status, answer = ask(f"{url}/api/about", Host="evil.example:8000")
    assert status == 421 and answer["given"] == "Host: evil.example:8000" and "localhost" in answer["expected"]
    assert ask(f"{url}/api/about", Host="[::1]:8000")[0] == 200
    for near in ("evil-localhost", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost:8000", "", "localhost:evil"):
        assert ask(f"{url}/api/about", Host=near)[0] == 421


def test_the_pages_answer_a_look_at_their_head_alone(url):
    for path in ("/", "/docs"):
        answer = speak(url, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n")
        assert b"\nserver:" not in answer.lower()  # which program this is helps nobody but an attacker


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(url):
    head = b"POST /api/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = speak(url, head + b"0\r\n\r\nGET /api/about HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1 and b"two lengths" in answer


@pytest.mark.parametrize(
    "token", [None, "Bearer correct-hors", "Bearer correct-horse2", "correct-horse", "Bearer ", "Basic correct-horse"]
)
def test_every_api_route_asks_for_the_token(guarded, token):
    headers = {} if token is None else {"Authorization": token}
    for path, body in (("about", None), ("search", {"text": QUERY}), ("score", {"pairs": []}), ("nothing", None)):
        status, answer = ask(f"{guarded}/api/{path}", body, **headers)
        assert status == 401 and answer["expected"] == "Authorization: Bearer TOKEN"
        assert "correct-horse" not in json.dumps(answer)


def test_json_that_is_not_called_so_is_told_how(url):
    status, answer = ask(f"{url}/api/search", {"text": QUERY}, **{"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 422 and answer["expected"].endswith("(send it with Content-Type: application/json)")


def test_the_right_token_is_let_in(guarded):
    assert ask(f"{guarded}/api/search", {"text": QUERY}, Authorization="Bearer correct-horse")[0] == 200


async def ask_at_once(port: int, many: int) -> list[int]:
    """The statuses of that many searches, all sent before any answer is read."""
    body = json.dumps({"text": QUERY, "top": 1}).encode()
    head = f"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    raw = head.encode() + b"Connection: close\r\n\r\n" + body

    async def one() -> int:
        while True:  # a queue that was full may have room now
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(raw)
                answer = await reader.read()
                writer.close()
                return int(answer.split(b" ")[1])
            await asyncio.sleep(0.1)

    return await asyncio.gather(*(one() for _ in range(many)))


def test_two_thousand_requests_at_once_are_answered_or_told_to_come_back(url):
    statuses = asyncio.run(ask_at_once(port_of(url), 2_000))
    assert set(statuses) <= {200, 503} and statuses.count(200) >= limits.MOST_WAITING // 2
    assert ask(f"{url}/api/search", {"text": QUERY})[0] == 200


def answer_of(connection: socket.socket) -> bytes:
    """The status that the server gives before it closes; nothing where it just closes."""
    with connection, contextlib.suppress(ConnectionError):
        while part := connection.recv(1000):
            return part.split(b" ")[1]
    return b""


def test_clients_that_stop_leave_no_one_waiting(both):
    half = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with serving(both, body_seconds=0.5, silent_seconds=0.5) as url:
        silent = [socket.create_connection(("127.0.0.1", port_of(url))) for _ in range(200)]
        for connection in silent[:150]:
            connection.sendall(half)  # more than may wait at once
        answers = [answer_of(connection) for connection in silent]
        assert set(answers[:150]) <= {b"408", b"503"}
        assert set(answers[150:]) == {b""}  # said nothing, and were let go
        assert ask(f"{url}/api/search", {"text": QUERY})[0] == 200


class Connection:
    """A transport and a loop in one: how much of an answer is unread at each look, and what was asked for."""

    def __init__(self, *unread):
        self.unread, self.aborted, self.later = list(unread), False, []

    def get_write_buffer_size(self):
        return self.unread[0]

    def call_later(self, seconds, look):
        self.later.append(look)
        return self

    def cancel(self):
        pass

    def abort(self):
        self.aborted = True


def test_a_client_that_reads_slowly_is_kept_until_it_reads_no_more():
    connection, impatient = Connection(9, 5, 5), server.Impatient.__new__(server.Impatient)
    impatient.transport, impatient.loop, impatient.cycle = connection, connection, None
    impatient._look_again()
    for aborted in (False, True):
        connection.unread.pop(0)
        connection.later.pop()()
        assert connection.aborted is aborted and bool(connection.later) is not aborted


def test_the_page_is_served_while_the_encoder_works(url, both, monkeypatch):
    model = both.models[0].model
    encode, at_work, may_end = model.encode, threading.Event(), threading.Event()

    def encode_long(*texts, **options):
        at_work.set()
        may_end.wait()
        return encode(*texts, **options)

    monkeypatch.setattr(model, "encode", encode_long)
    work = threading.Thread(target=ask, args=(f"{url}/api/score", {"pairs": [{"left": "a", "right": "b"}]}))
    work.start()
    at_work.wait()
    assert ask(f"{url}/api/about")[0] == 200 and work.is_alive()
    may_end.set()
    work.join()


def test_a_failure_of_the_encoder_is_one_answer_and_not_the_end(both, monkeypatch):
    with serving(both) as url:
        monkeypatch.setattr(matcher, "_search", lambda *_: 1 / 0)
        status, answer = ask(f"{url}/api/search", {"text": QUERY})
        assert status == 500 and "division" not in json.dumps(answer)
        monkeypatch.undo()
        assert ask(f"{url}/api/search", {"text": QUERY})[0] == 200


def test_a_text_that_the_tokenizer_panics_on_is_one_answer_and_not_the_end(tiny_model, tmp_path):
    backend = tiny_model.tokenizer.backend_tokenizer
    backend.normalizer = normalizers.Sequence([normalizers.Replace(Regex("(a+)+b"), ""), backend.normalizer])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **tiny_model.tokenizer.special_tokens_map)
    tiny_model[0].processor = tokenizer
    tiny_model.save_pretrained(str(tmp_path), create_model_card=False)
    with serving(matcher.load_matcher(str(tmp_path))) as url:
        status, answer = ask(f"{url}/api/score", {"pairs": [{"left": "a" * 40, "right": "b"}]})
        assert status == 500 and "log says why" in answer["error"]
        assert ask(f"{url}/api/score", {"pairs": [{"left": "a", "right": "b"}]})[0] == 200


class Panic(BaseException):
    """As the tokenizer raises it."""


@pytest.mark.parametrize("raised", [SystemExit, Panic, StopIteration, ValueError])
def test_of_questions_that_are_answered_together_only_the_one_that_fails_hears_of_it(raised):
    def work(questions):
        if "bad" in questions:
            raise raised
        return [question.upper() for question in questions]

    async def ask_three():
        batcher = Batcher(work, prepare=lambda: None)
        asked = [asyncio.create_task(batcher.ask(question)) for question in ("a", "bad", "b")]
        await asyncio.sleep(0)  # all three wait before the first is answered
        answering = asyncio.create_task(batcher.run())
        later = asyncio.create_task(batcher.ask("c"))
        await asyncio.wait([answering, later], return_when=asyncio.FIRST_COMPLETED)
        assert not answering.done() and later.result() == "C"
        assert all(one.done() for one in asked)  # who asked before is answered before
        answering.cancel()
        batcher.close()
        return await asyncio.gather(*asked, return_exceptions=True)

    first, failed, last = asyncio.run(ask_three())
    assert (first, last) == ("A", "B") and isinstance(failed, RuntimeError) and raised.__name__ in str(failed)


def test_without_a_corpus_pairs_are_scored_and_a_search_says_what_is_missing(tiny_encoder):
    with serving(matcher.load_matcher(tiny_encoder)) as url:
        assert len(ask(f"{url}/api/score", {"pairs": [{"left": "a", "right": "b"}]})[1]["models"]) == 1
        status, answer = ask(f"{url}/api/search", {"text": QUERY})
        assert status == 409 and "--corpus" in answer["expected"]


def test_the_index_is_kept_for_both_encoders_and_rebuilt_when_the_corpus_changes(both, tiny_encoder, tmp_path):
    corpus = write_corpus(tmp_path)
    original = both.models[1].encoder

    def built() -> list[float]:
        found = matcher.load_matcher(tiny_encoder, corpus, original=original)
        assert found.texts == len(corpus.read_text().splitlines())
        return [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("*.index/vectors.faiss"))]

    first = built()
    assert len(first) == 2 and built() == first
    corpus.write_text(corpus.read_text() + "\none more text")
    assert all(new > old for new, old in zip(built(), first, strict=True))


def test_the_original_is_read_from_the_record_beside_the_model(tmp_path):
    for run in (tmp_path / "a", tmp_path / "b" / "seed-2"):
        run.mkdir(parents=True)
        (run / "record.json").write_text('{"encoder": "mpnet"}')
    assert matcher.find_original(tmp_path / "a" / "model") == "mpnet"
    assert matcher.find_original(tmp_path / "b" / "model") == "mpnet"
    (tmp_path / "a" / "record.json").write_text("{")
    assert matcher.find_original(tmp_path / "a" / "model") is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "evil-localhost"])
def test_other_machines_need_a_token(host):
    with pytest.raises(UserError, match=f"--host {host} can be reached from other machines, and there is no --token"):
        server.check_exposure(host, None)
    server.check_exposure(host, "long-enough")


def test_a_token_that_is_soon_guessed_is_refused():
    for token in ("abc", "seven77", "ümläut-ümläut", "two words here"):
        with pytest.raises(UserError, match=f"--token has {len(token)} characters; give at least 8 of plain ASCII"):
            server.check_exposure("127.0.0.1", token)
    server.check_exposure("127.0.0.1", "eight888")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LocalHost"])
def test_this_machine_needs_none(host):
    assert server.check_exposure(host, None) is None  # it would raise


def test_a_port_that_is_taken_is_said_at_once(url):
    with pytest.raises(UserError, match=rf"cannot listen on 127.0.0.1, port {port_of(url)} .*another --port"):
        server.open_socket("127.0.0.1", port_of(url))
    for port in (-1, 65_536, 70_000):
        with pytest.raises(UserError, match=rf"port {port} \(ports go from 0 to 65535\)"):
            server.open_socket("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"localhost", "127.0.0.1", "[::1]"}),
        ("127.8.8.8", {"localhost", "127.0.0.1", "[::1]", "127.8.8.8"}),
        ("0.0.0.0", set()),  # whoever may ask has the token, under any name
    ],
)
def test_a_server_of_this_machine_goes_by_its_names_alone(both, host, names):
    made = server.make_server(both, host, "correct-horse", body_seconds=3.0, silent_seconds=4.0)
    guard, connection = made.config.app, made.config.http
    assert (guard.hosts, guard.token, guard.body_seconds) == (names, "correct-horse", 3.0)
    assert connection.silent_seconds == 4.0 and server.Impatient.silent_seconds == server.SILENT_SECONDS


def test_the_command_serves_until_it_is_interrupted(tiny_encoder, tmp_path):
    import signal

    command = [sys.executable, "-m", "pairtune", "serve", tiny_encoder, "--corpus", str(write_corpus(tmp_path)), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in process.stderr if "http://" in line)
        found = re.search(r"http://127\.0\.0\.1:\d+", line).group()
        assert ask(f"{found}/api/search", {"text": QUERY, "top": 1})[1]["models"][0]["matches"][0]["text"] == CORPUS[1]
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait() in (0, 130, -signal.SIGINT)
    assert "Traceback" not in process.stderr.read()
