"""What may be asked and is answered, the source of /openapi.json; and who may ask, how much, how many at once, for how long."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MOST_BYTES = 1 << 20  # of a request's body
MOST_CHARACTERS = 100_000  # of one text: an encoder reads a few hundred words of it
MOST_PAIRS = 1_000
MOST_MATCHES = 100
MOST_WAITING = 128  # requests that are being answered; the next one is told to come back
BODY_SECONDS = 10.0  # a client that stops in the middle of its request is let go
ANSWER_SECONDS = 120.0  # for all of it, reading the answer included
DRAIN_BYTES = 16 << 20  # a body that is too large is read so far, so that its sender hears why it was refused

MOST_DIGITS = 20  # of a length: more bytes than there are anywhere

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(eq=False)
class Refused(Exception):
    """A request that will not be answered: the status, what was given, what was expected."""

    status: int
    error: str
    given: str
    expected: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Guard:
    """An ASGI layer around the app: it checks host and token, counts, reads the body, and watches the clock.

    token: what /api asks for as `Authorization: Bearer …`. hosts: the names this server goes by, none for any:
    a page elsewhere that had its own name point here (DNS rebinding) is turned away. body_seconds: for a whole request;
    answer_seconds: for its answer. most_waiting: requests that are answered at the same time.
    """

    def __init__(
        self,
        app: Any,
        *,
        token: str | None = None,
        hosts: frozenset[str] = frozenset(),
        body_seconds: float = BODY_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.app, self.token, self.hosts = app, token, hosts
        self.body_seconds, self.answer_seconds, self.most_waiting = body_seconds, answer_seconds, most_waiting
        self.waiting = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(self.answer_seconds):
                await self._admit(scope, receive, watched)
        except Refused as refusal:
            await _refuse(refusal, send)
        except TimeoutError:
            if started:
                raise  # a client that does not read: the connection is closed
            seconds = f"{self.answer_seconds:.0f} s"
            await _refuse(Refused(503, f"no answer within {seconds}", "a long request", "fewer or shorter texts"), send)

    async def _admit(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = _read_headers(scope["headers"])
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if b"content-length" in headers and b"transfer-encoding" in headers:  # two servers would see two ends of it
            raise Refused(400, "the request has two lengths", "Content-Length and Transfer-Encoding", "one of the two")
        if not scope["path"].startswith("/api"):
            await self.app(scope, receive, send)
            return
        self._check_token(headers.get(b"authorization", b""))
        if self.waiting >= self.most_waiting:
            given, expected = (
                f"{self.waiting} requests are waiting already",
                f"at most {self.most_waiting}: try again in a second",
            )
            raise Refused(503, "too many requests at once", given, expected, ((b"retry-after", b"1"),))
        self.waiting += 1
        try:
            body = await _read_body(headers, receive, self.body_seconds)
            await self.app(scope, _replay(body, receive), send)
        finally:
            self.waiting -= 1

    def _check_host(self, given: str) -> None:
        name, _, port = given.rpartition(":")
        name = name if port.isascii() and port.isdigit() else given  # ² is a digit, too, but no port
        if self.hosts and name.lower() not in self.hosts:
            raise Refused(421, "this server does not go by that name", f"Host: {given[:200]}", " or ".join(sorted(self.hosts)))

    def _check_token(self, given: bytes) -> None:
        if self.token is None:
            return
        expected = b"Bearer " + self.token.encode()
        if not hmac.compare_digest(given, expected):  # takes as long for a near miss as for any other
            what = "another token" if given else "no token"
            raise Refused(
                401, "this server asks for a token", what, "Authorization: Bearer TOKEN", ((b"www-authenticate", b"Bearer"),)
            )


ONCE = (b"host", b"content-length", b"authorization")  # headers that decide: of two, a proxy may have checked the other one


def _read_headers(given: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers by name, in small letters; refuse one that must not come twice."""
    headers: dict[bytes, bytes] = {}
    for name, value in given:
        name = name.lower()
        if name in ONCE and name in headers:
            raise Refused(
                400, "the request has a header twice", name.decode(), "each of host, content-length and authorization once"
            )
        headers[name] = value
    return headers


async def _read_body(headers: dict[bytes, bytes], receive: Receive, patience: float) -> bytes:
    """The whole body, whatever its length was said to be."""
    declared = headers.get(b"content-length", b"0")
    size = int(declared[:MOST_DIGITS]) if declared.isdigit() else 0  # Python reads no number of more than 4,300 digits
    kept = bytearray()
    if size <= DRAIN_BYTES:
        size = 0
        try:
            async with asyncio.timeout(patience):
                more = True
                while more and size <= DRAIN_BYTES:
                    message = await receive()
                    part = message.get("body", b"")
                    size += len(part)
                    kept += part if size <= MOST_BYTES else b""
                    more = bool(message.get("more_body"))
        except TimeoutError:
            seconds = f"{patience:.0f} s"
            raise Refused(408, f"the request did not arrive within {seconds}", f"{size:,} bytes", "all of it") from None
    if size > MOST_BYTES:
        raise Refused(413, "the request is too large", f"{size:,} bytes or more", f"at most {MOST_BYTES:,} bytes")
    return bytes(kept)


def _replay(body: bytes, receive: Receive) -> Receive:
    """What the app reads: the body that has arrived, then whatever comes (that the client has gone)."""
    parts = [body]

    async def replay() -> Message:
        return {"type": "http.request", "body": parts.pop(), "more_body": False} if parts else await receive()

    return replay


async def _refuse(refusal: Refused, send: Send) -> None:
    body = json.dumps({"error": refusal.error, "given": refusal.given, "expected": refusal.expected, "problems": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*headers, *refusal.headers]})
    await send({"type": "http.response.body", "body": body})


Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS, pattern=r"\S")]


class Asked(BaseModel):
    """A request: closed, so that a misspelt field is refused instead of passed over."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Asked):
    """A text, and how many of the nearest texts of the corpus to return."""

    text: Text = Field(examples=["wait until all threads are done"])
    top: int = Field(10, ge=1, le=MOST_MATCHES)


class Pair(Asked):
    """Two texts."""

    left: Text = Field(examples=["how do I sort a list?"])
    right: Text = Field(examples=["sorted(iterable) returns a new sorted list"])


class ScoreRequest(Asked):
    """Pairs of texts to score; for two texts, a list of one pair."""

    pairs: list[Pair] = Field(min_length=1, max_length=MOST_PAIRS)


class Match(BaseModel):
    """A text of the corpus and its cosine with the text that was asked for."""

    score: float
    text: str


class Matches(BaseModel):
    """What one encoder finds, best first."""

    model: str = Field(description="tuned or original", examples=["tuned"])
    encoder: str
    matches: list[Match]


class SearchAnswer(BaseModel):
    """The nearest texts, for each encoder."""

    models: list[Matches]
    milliseconds: float = Field(description="from the arrival of the request to the answer")


class Scores(BaseModel):
    """The cosine of each pair, in the order of the request."""

    model: str = Field(description="tuned or original", examples=["tuned"])
    encoder: str
    scores: list[float]


class ScoreAnswer(BaseModel):
    """The scores of the pairs, for each encoder."""

    models: list[Scores]
    milliseconds: float = Field(description="from the arrival of the request to the answer")


class Encoder(BaseModel):
    """One of the encoders that answer."""

    model: str
    encoder: str
    tokens: int | None = Field(description="how much of a text it reads")


class About(BaseModel):
    """What is being served, and how much may be asked at once."""

    version: str
    models: list[Encoder]
    corpus: str | None
    texts: int = Field(description="distinct texts of the corpus")
    most_characters: int
    most_matches: int
    most_pairs: int


class Problem(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(examples=["body.top"])
    given: str = Field(examples=["0"])
    expected: str = Field(examples=["Input should be greater than or equal to 1"])


class Refusal(BaseModel):
    """Why a request was not answered: a sentence, what was given, what was expected."""

    error: str
    given: str
    expected: str
    problems: list[Problem] = []
