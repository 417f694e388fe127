"""Requests of a controller to aggregated API servers, as the controller's user."""

from __future__ import annotations

from typing import Any

import orjson

from kas.aggregator.aggregator import Aggregator
from kas.aggregator.apiservices import APIService
from kas.auth.user import UserInfo

TIMEOUT_S, MOST_BYTES = 30.0, 16 << 20
_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
_JSON = [(b"accept", b"application/json"), (b"content-type", b"application/json")]


class Backends:
    """The backends known to the worker's ``aggregator``, called as the service account ``account`` of kube-system."""

    def __init__(self, aggregator: Aggregator, account: str) -> None:
        self.aggregator, self._user = aggregator, UserInfo(f"system:serviceaccount:kube-system:{account}", _GROUPS)

    async def ask(self, service: APIService, method: str, path: str, query: str = "", body: bytes = b"") -> tuple[int, Any]:
        """Return status and decoded body, None for a body that is not JSON. Raises BackendError if there is no response."""
        ask = self.aggregator.proxy.ask
        status, _, data = await ask(service, method, path, self._user, _JSON, MOST_BYTES, TIMEOUT_S, query, body)
        try:
            return status, orjson.loads(data)
        except orjson.JSONDecodeError:
            return status, None
