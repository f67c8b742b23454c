"""Who may ask, how much, how many at once: the guard around the app, called as a server calls it, without one."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from pathlib import Path

import pytest
from pydantic import ValidationError

from pairtune.serve import requests as limits
from pairtune.serve.requests import Guard, ScoreRequest, SearchRequest

HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


def call(guard, headers=(), path="/api/score", parts=(b"{}",), kind="http"):
    """Status, headers and JSON of the answer; what comes of a body arrives in these parts, then nothing more."""
    sent, coming = [], [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if coming:
        coming[-1]["more_body"] = False

    async def receive():
        return coming.pop(0) if coming else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "path": path, "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers]}
    asyncio.run(guard(scope, receive, send))
    start, *rest = sent
    assert [message["type"] for message in sent] == ["http.response.start", *["http.response.body"] * len(rest)]
    return start["status"], dict(start["headers"]), json.loads(b"".join(message["body"] for message in rest))


async def tell(scope, receive, send):
    """An app that answers with what it has read."""
    message = await receive() if scope["path"].startswith("/api") else {"body": b""}
    body = json.dumps({"read": len(message["body"]), "more": message.get("more_body")}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("host", "welcome"),
    [
        ("localhost", True),
        ("LocalHost:8000", True),
        ("127.0.0.1:80", True),
        ("[::1]", True),
        ("[::1]:8000", True),
        ("evil-localhost", False),
        ("localhost.evil.example:8000", False),
        ("localhost:evil", False),
        ("localhost:", False),
        ("localhost:²", False),
        ("", False),
        (None, False),
    ],
)
def test_only_the_names_of_this_machine_are_answered_and_only_whole_ones(host, welcome):
    headers = [] if host is None else [("Host", host)]
    status, _, answer = call(Guard(tell, hosts=HOSTS), headers)
    assert status == (200 if welcome else 421)
    if not welcome:
        assert answer["given"] == f"Host: {host or ''}" and answer["expected"] == "127.0.0.1 or [::1] or localhost"


def test_without_names_any_host_is_answered_and_a_long_one_is_not_said_back():
    assert call(Guard(tell), [("host", "example.org")])[0] == 200
    assert len(call(Guard(tell, hosts=HOSTS), [("host", "x" * 5000)])[2]["given"]) == len("Host: ") + 200


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("Bearer secret-token", 200),
        ("Bearer secret-toke", 401),
        ("Bearer secret-token2", 401),
        ("bearer secret-token", 401),
        ("secret-token", 401),
        (None, 401),
    ],
)
def test_the_api_asks_for_the_token_and_pages_do_not(given, status):
    guard = Guard(tell, token="secret-token")
    headers = [] if given is None else [("AUTHORIZATION", given)]
    found, sent, answer = call(guard, headers)
    assert found == status and call(guard, headers, path="/docs")[0] == 200
    assert call(guard, headers, path="/api")[0] == status
    if status == 401:
        assert (sent[b"www-authenticate"], sent[b"connection"]) == (b"Bearer", b"close")
        assert sent[b"content-type"] == b"application/json"
        assert answer["given"] == ("no token" if given is None else "another token")


TWO_LENGTHS, A_LENGTH = "Content-Length and Transfer-Encoding", [("content-length", "9999999999")]


@pytest.mark.parametrize(
    ("headers", "status", "error", "given", "expected"),
    [
        ([("host", "a.b")], 421, "this server does not go by that name", "Host: a.b", "127.0.0.1 or [::1] or localhost"),
        ([], 401, "this server asks for a token", "no token", "Authorization: Bearer TOKEN"),
        (
            [("content-length", "2"), ("transfer-encoding", "chunked")],
            400,
            "the request has two lengths",
            TWO_LENGTHS,
            "one of the two",
        ),
        (
            [("host", "localhost")],
            400,
            "the request has a header twice",
            "host",
            "each of host, content-length and authorization once",
        ),
        (A_LENGTH, 413, "the request is too large", "9,999,999,999 bytes or more", "at most 1,048,576 bytes"),
        (None, 408, "the request did not arrive within 0 s", "0 bytes", "all of it"),
        (None, 503, "no answer within 0 s", "a long request", "fewer or shorter texts"),
        (None, 503, "too many requests at once", "0 requests are waiting already", "at most 0: try again in a second"),
    ],
)
def test_a_refusal_says_what_was_given_and_what_was_expected(headers, status, error, given, expected):
    guard = Guard(
        tell,
        token="secret-token",
        hosts=HOSTS,
        body_seconds=0.01 if status == 408 else 9.0,
        answer_seconds=0.01 if "no answer" in error else 9.0,
        most_waiting=0 if "too many" in error else 9,
    )
    own, token = ("host", "localhost"), ("authorization", "Bearer secret-token")
    sent = [*([] if status == 421 else [own]), *([] if status == 401 else [token]), *(headers or [])]
    found, _, answer = call(guard, sent, parts=() if headers is None else (b"{}",))
    assert found == status and answer == {"error": error, "given": given, "expected": expected, "problems": []}


def test_a_message_without_a_part_of_the_body_adds_nothing():
    async def receive():
        return {"type": "http.request"}  # its body and whether more comes are as ASGI's defaults say

    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(tell)({"type": "http", "path": "/api/score", "headers": []}, receive, send))
    assert json.loads(sent[1]["body"]) == {"read": 0, "more": False}


def test_a_body_is_given_to_the_app_whole_up_to_the_limit_and_not_a_byte_more():
    half = b"x" * (limits.MOST_BYTES // 2)
    assert call(Guard(tell), parts=(half, half))[2] == {"read": limits.MOST_BYTES, "more": False}
    status, _, answer = call(Guard(tell), parts=(half, half, b"x"))
    assert (status, answer["given"], answer["expected"]) == (413, "1,048,577 bytes or more", "at most 1,048,576 bytes")


def test_a_body_that_never_ends_is_read_no_further_than_a_limit():
    endless = (b"x" * (1 << 20),) * 40
    tracemalloc.start()
    status, _, answer = call(Guard(tell), parts=endless)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert status == 413 and answer["given"] == f"{limits.DRAIN_BYTES + (1 << 20):,} bytes or more"
    assert most < 4 * limits.MOST_BYTES  # what will be refused is not kept


def test_a_length_that_is_far_too_large_is_refused_before_anything_is_read():
    status, _, answer = call(Guard(tell), [("content-length", "99999999999")], parts=())
    assert status == 413 and answer["given"] == "99,999,999,999 bytes or more"
    assert call(Guard(tell), [("content-length", "many")])[0] == 200  # what it is said to be does not matter
    assert call(Guard(tell), [("content-length", str(limits.DRAIN_BYTES))])[2]["read"] == 2


@pytest.mark.parametrize("digits", [4_000, 5_000])
def test_a_length_of_thousands_of_digits_is_too_large(digits):
    status, sent, answer = call(Guard(tell), [("content-length", "9" * digits)], parts=())
    assert status == 413 and sent[b"connection"] == b"close" and len(answer["given"]) < 50


@pytest.mark.parametrize("path", ["/api/score", "/docs"])
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("Host", "localhost", "evil.example"), ("Content-Length", "2", "2"), ("authorization", "Bearer x", "Bearer secret-token")],
)
def test_a_header_that_decides_is_refused_when_it_comes_twice(path, name, first, second):
    for one, other in ((first, second), (second, first)):
        guard = Guard(tell, token="secret-token", hosts=HOSTS)
        status, sent, answer = call(guard, [(name, one), (name.lower(), other)], path)
        assert (status, answer["given"]) == (400, name.lower()) and sent[b"connection"] == b"close"


@pytest.mark.parametrize("path", ["/api/score", "/docs"])
def test_two_lengths_are_refused_on_every_path(path):
    both = [("Content-Length", "4"), ("Transfer-Encoding", "chunked")]
    status, sent, answer = call(Guard(tell), both, path)
    assert status == 400 and "two lengths" in answer["error"] and sent[b"connection"] == b"close"
    assert int(sent[b"content-length"]) == len(json.dumps(answer))
    assert all(call(Guard(tell), [one], path)[0] == 200 for one in both)


def test_no_more_than_so_many_wait_and_those_that_are_done_make_room():
    guard = Guard(tell, most_waiting=2)
    for waiting, status in ((1, 200), (2, 503)):
        guard.waiting = waiting
        found, sent, answer = call(guard)
        assert found == status and guard.waiting == waiting
    assert sent[b"retry-after"] == b"1" and answer["given"] == "2 requests are waiting already"
    assert call(guard, path="/docs")[0] == 200


def test_what_an_app_raises_still_makes_room():
    async def fail(*_):
        raise RuntimeError("of the app")

    guard = Guard(fail)
    with pytest.raises(RuntimeError, match="of the app"):
        call(guard)
    assert guard.waiting == 0


def test_a_body_that_does_not_come_and_an_answer_that_does_not_are_let_go():
    async def never(*_):
        await asyncio.Event().wait()

    status, _, answer = call(Guard(tell, body_seconds=0.01), parts=())
    assert (status, answer["given"], answer["expected"]) == (408, "0 bytes", "all of it")
    status, _, answer = call(Guard(never, answer_seconds=0.01))
    assert (status, answer["error"]) == (503, "no answer within 0 s") and answer["expected"] == "fewer or shorter texts"


def test_an_answer_that_is_never_read_ends_its_connection_and_is_not_answered_twice():
    async def half(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        call(Guard(half, answer_seconds=0.01))


def test_an_app_that_listens_on_hears_what_comes_after_the_body():
    heard = []

    async def listen(scope, receive, send):
        heard.extend([await receive(), await receive()])
        await tell({"path": "/"}, receive, send)

    async def run():
        coming = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect", "by": "client"}]

        async def receive():
            return coming.pop(0)

        async def send(message):
            pass

        await Guard(listen)({"type": "http", "path": "/api/score", "headers": []}, receive, send)

    asyncio.run(run())
    assert heard == [{"type": "http.request", "body": b"{}", "more_body": False}, {"type": "http.disconnect", "by": "client"}]


def test_what_is_no_request_is_passed_on():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["type"], receive, send))

    asyncio.run(Guard(app, hosts=HOSTS)({"type": "lifespan"}, "receive", "send"))
    assert seen == [("lifespan", "receive", "send")]


def test_the_limits_are_those_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    for row in (
        f"| body of a request | {limits.MOST_BYTES >> 20} MiB, however it is sent |",
        f"| one text | {limits.MOST_CHARACTERS:,} characters |",
        f"| pairs in a request, matches of a search | {limits.MOST_PAIRS:,}, {limits.MOST_MATCHES} |",
        f"| requests at a time | {limits.MOST_WAITING} |",
        f"| time for a body to arrive, for an answer | {limits.BODY_SECONDS:.0f} s, {limits.ANSWER_SECONDS:.0f} s |",
    ):
        assert row in page, row


PAIR = {"left": "a", "right": "b"}


@pytest.mark.parametrize(
    ("kind", "least", "most", "refused"),
    [
        (SearchRequest, {"text": "a"}, {"text": "x" * limits.MOST_CHARACTERS}, {"text": "x" * (limits.MOST_CHARACTERS + 1)}),
        (SearchRequest, {"text": "a", "top": 1}, {"text": "a", "top": 100}, {"text": "a", "top": 101}),
        (SearchRequest, {"text": " a"}, {"text": "a "}, {"text": " \n\u2003"}),
        (SearchRequest, {"text": "a"}, {"text": "a"}, {"text": "a", "top": 0}),
        (SearchRequest, {"text": "a"}, {"text": "a"}, {"text": ""}),
        (SearchRequest, {"text": "a"}, {"text": "a"}, {"text": "a", "tpo": 3}),
        (ScoreRequest, {"pairs": [PAIR]}, {"pairs": [PAIR] * 1000}, {"pairs": [PAIR] * 1001}),
        (ScoreRequest, {"pairs": [PAIR]}, {"pairs": [PAIR]}, {"pairs": []}),
        (ScoreRequest, {"pairs": [PAIR]}, {"pairs": [PAIR]}, {"pairs": [{**PAIR, "label": 1}]}),
    ],
)
def test_a_request_is_taken_up_to_its_limits_and_refused_beyond(kind, least, most, refused):
    assert kind.model_validate(least) and kind.model_validate(most)
    with pytest.raises(ValidationError):
        kind.model_validate(refused)
