"""Serves the metrics over HTTP: /metrics, a plain page for people, and whether it is well.

It listens on this machine only, unless told otherwise: what a run is called and how it goes is
nobody else's business, and there is no password. It answers GET and HEAD, and changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from stabexp.boards.collector import RunCollector, encoded
from stabexp.boards.files import DASHBOARD, RULES, packaged
from stabexp.boards.page import page
from stabexp.boards.shown_runs import ShownRuns, Wanted
from stabexp.errors import StabexpError

SECONDS_TO_ASK = 10.0
"""A connection that has not asked by then is closed."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
}


class MetricsServer(ThreadingHTTPServer):
    """The endpoint for the runs below one root."""

    daemon_threads = True

    def __init__(self, wanted: Wanted, *, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            StabexpError: If the address cannot be listened on.
        """
        self.wanted = wanted
        self.collector = RunCollector(ShownRuns(wanted))
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StabexpError(
                f"{host}:{port}: cannot be listened on: {reason}; take another --port or --host"
            ) from error

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}"


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "stabexp"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = SECONDS_TO_ASK

    def do_GET(self) -> None:
        answer = _ANSWERS.get(urlsplit(self.path).path)
        if answer is None:
            self._send(404, "text/plain; charset=utf-8", b"not found; try /metrics\n")
            return
        try:
            content_type, body = answer(self)
        except Exception as error:
            self.log_error("%s", repr(error))
            text = "the runs could not be read; the endpoint's own output says why\n"
            self._send(500, "text/plain; charset=utf-8", text.encode())
            return
        self._send(200, content_type, body)

    do_HEAD = do_GET

    def metrics(self) -> tuple[str, bytes]:
        body, content_type = encoded(self.server.collector, self.headers.get("Accept", ""))
        return content_type, body

    def page(self) -> tuple[str, bytes]:
        self.server.collector.collect()
        text = page(self.server.collector.runs, root=self.server.wanted.root)
        return "text/html; charset=utf-8", text.encode()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing of every scrape."""

    def _send(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


_ANSWERS: dict[str, Callable[[_Handler], tuple[str, bytes]]] = {
    "/": _Handler.page,
    "/metrics": _Handler.metrics,
    "/-/healthy": lambda _: ("text/plain; charset=utf-8", b"healthy\n"),
    f"/{DASHBOARD}": lambda _: ("application/json", packaged(DASHBOARD).encode()),
    f"/{RULES}": lambda _: ("text/plain; charset=utf-8", packaged(RULES).encode()),
}
