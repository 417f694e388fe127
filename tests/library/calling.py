"""Requests to a server of the library."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import kas

PATIENCE_S = 60.0


class Caller:
    """``call("GET", path)`` returns the status and the answer: JSON if it is, else text. One connection for each request."""

    def __init__(self, server: kas.Server, token: str = "", headers: dict[str, str] | None = None) -> None:
        self._address = urlsplit(server.url)
        self._who = headers or {"Authorization": f"Bearer {token or server.token}"}
        self._tls = ssl.create_default_context(cafile=str(server.ca))

    def _ask(self, method: str, path: str, body: Any, content_type: str, accept: str) -> http.client.HTTPSConnection:
        found = http.client.HTTPSConnection(self._address.hostname or "", self._address.port, timeout=PATIENCE_S, context=self._tls)
        headers = {**self._who, "Content-Type": content_type, "Accept": accept}
        found.request(method, path, None if body is None else json.dumps(body), headers)
        return found

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", accept: str = "application/json"
    ) -> tuple[int, Any]:
        with contextlib.closing(self._ask(method, path, body, content_type, accept)) as connection:
            response = connection.getresponse()
            data = response.read()
            is_json = (response.headers["Content-Type"] or "").startswith("application/json")
            return response.status, json.loads(data) if is_json else data.decode(errors="replace")

    @contextlib.contextmanager
    def watch(self, path: str) -> Iterator[Iterator[dict[str, Any]]]:
        """Yields the events of a watch, as they come."""
        with contextlib.closing(self._ask("GET", path, None, "application/json", "application/json")) as connection:
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in response)
