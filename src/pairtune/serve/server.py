"""The process that serves: where it listens, and which connections it lets go."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pairtune.errors import UserError
from pairtune.progress import say
from pairtune.serve.app import make_app
from pairtune.serve.matcher import Matcher, load_matcher
from pairtune.serve.requests import BODY_SECONDS

if TYPE_CHECKING:
    from pairtune.encoders.prompts import AskedPrompts

SILENT_SECONDS = 15.0  # a connection that has not sent a whole header by then is closed
SHORTEST_TOKEN = 8
BACKLOG = 2048  # connections that wait to be accepted
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def run_server(
    model: str,
    *,
    corpus: Path | None,
    column: str | None,
    original: str | None,
    dimension: int | None,
    prompts: AskedPrompts | None,
    host: str,
    port: int,
    token: str | None,
) -> None:
    """Listen, load, and answer until Ctrl-C; what is wrong with the address is said before the corpus is encoded."""
    check_exposure(host, token)
    with open_socket(host, port) as listener:
        matcher = load_matcher(model, corpus, column, original, dimension, prompts)
        listener.listen(BACKLOG)  # whoever reads the next line may come at once
        where = f"[{host}]" if ":" in host else host
        say(f"http://{where}:{listener.getsockname()[1]}/ is ready; /docs describes the API; Ctrl-C stops it")
        with suppress(KeyboardInterrupt):
            make_server(matcher, host, token).run(sockets=[listener])


def make_server(
    matcher: Matcher,
    host: str = "127.0.0.1",
    token: str | None = None,
    *,
    body_seconds: float = BODY_SECONDS,
    silent_seconds: float = SILENT_SECONDS,
) -> uvicorn.Server:
    """A server of the page and the API, quiet but for its failures. The seconds are those after which a client is let go."""
    hosts = LOCAL_NAMES | {host} if is_local(host) else frozenset()
    app = make_app(matcher, token=token, hosts=hosts, body_seconds=body_seconds)
    config = uvicorn.Config(
        app,
        http=type("Impatient", (Impatient,), {"silent_seconds": silent_seconds}),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


class Impatient(H11Protocol):
    """The host's HTTP, less patient: a client that says nothing, half a header, or stops reading is let go."""

    silent_seconds = SILENT_SECONDS
    _timer: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._look_again()

    def on_response_complete(self) -> None:
        """Start it again for the next request on the same connection."""
        super().on_response_complete()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._unread = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.silent_seconds, self._let_go)

    def _let_go(self) -> None:
        """Close what stands still; a request in progress has a clock of its own (limits.Guard)."""
        reads = self.transport.get_write_buffer_size() < self._unread
        works = self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing()
        if reads or works:
            self._look_again()
        else:
            self.transport.abort()


def is_local(host: str) -> bool:
    """Only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_exposure(host: str, token: str | None) -> None:
    """What others can reach asks for a token."""
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or any(c.isspace() for c in token)):
        raise UserError(
            f"--token has {len(token)} characters; give at least {SHORTEST_TOKEN} of plain ASCII without spaces, for example "
            f"from: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if token is None and not is_local(host):
        raise UserError(
            f"--host {host} can be reached from other machines, and there is no --token: give one "
            f"(or in PAIRTUNE_TOKEN), or stay on 127.0.0.1"
        )


def open_socket(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes any that is free."""
    listener = None
    try:
        if not 0 <= port < 1 << 16:  # it would be taken modulo 65,536
            raise OverflowError("ports go from 0 to 65535")
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as problem:
        if listener is not None:
            listener.close()
        raise UserError(
            f"cannot listen on {host}, port {port} ({problem}): give another --port, or 0 for any free one"
        ) from problem
    return listener
