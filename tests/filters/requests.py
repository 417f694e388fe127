"""Requests and answers for the tests of single filters."""

from __future__ import annotations

from kas.auth.user import UserInfo
from kas.filters.request_info import request_info
from kas.request.http import Request, Response


def request(method: str = "GET", path: str = "/api/v1/pods", query: str = "", **headers: str) -> Request:
    """Returns a request of jane as ``request_info`` leaves it."""
    sent = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    req = Request(method, path, query, sent)
    request_info().before(req)
    req.user = UserInfo("jane", ("system:authenticated",))
    return req


def header(resp: Response, name: bytes) -> list[bytes]:
    return [v for k, v in resp.headers if k == name]
