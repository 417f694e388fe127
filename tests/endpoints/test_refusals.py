"""A refusal is the same whether its text is assembled in compiled code or encoded as any object."""

from __future__ import annotations

import json

import pytest

from kas.endpoints.respond import media, status
from kas.meta.errors import ApiError, already_exists, conflict, forbidden, not_found
from kas.request.http import Request
from kas.request.requestinfo import Query

REFUSALS = {
    "quotes": ApiError(403, "Forbidden", 'pods "a" is forbidden: User "jane" cannot get', {"name": "a", "kind": "pods"}),
    "no message": ApiError(500, "", ""),
    "no details": ApiError(401, "Unauthorized", "Unauthorized"),
    "empty details": ApiError(404, "NotFound", "the server could not find the requested resource", {}),
    "retry": ApiError(429, "TooManyRequests", "later", {"retryAfterSeconds": 3}),
    "html": ApiError(400, "BadRequest", "a <b> & c"),
    "backslash": ApiError(400, "BadRequest", 'a "\\" b'),
    "beyond ASCII": ApiError(400, "BadRequest", 'kein "Käse"'),
    "causes": ApiError(422, "Invalid", "wrong", {"name": "x", "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "f"}]}),
}


def asked(agent: str, query: str = "") -> Request:
    """A client that is not known yet."""
    req = Request("GET", "/api/v1/pods", query, [(b"accept", b"application/json"), (b"user-agent", agent.encode())])
    req.params = Query(query)
    return req


@pytest.mark.parametrize("make", [not_found, already_exists, lambda *of: forbidden(*of, "why"), lambda *of: conflict(*of, "why")])
def test_names_are_quoted_as_in_go(make) -> None:
    assert '"\\x00 é \\" \\u200b"' in make("", "pods", '\x00 é " \u200b').message


@pytest.mark.parametrize("name", REFUSALS)
def test_the_refusal_of_a_known_client_is_equal(name: str) -> None:
    e = REFUSALS[name]
    first = status(asked(f"new-{name}"), e)
    media(asked(f"known-{name}"))
    again = status(asked(f"known-{name}"), e)
    assert (again.status, again.headers, again.body) == (first.status, first.headers, first.body)
    assert json.loads(again.body) == e.status()


def test_indented_answers() -> None:
    media(asked("known"))
    plain, pretty = (status(asked("known", query), REFUSALS["quotes"]).body for query in ("", "pretty=1"))
    assert json.loads(plain) == json.loads(pretty)
    assert plain.count(b"\n") == 1 < pretty.count(b"\n")


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "agent", "media", "lines"),
    [
        (f"{TABLE},application/json", "kubectl", b"application/json", 1),
        (f"{TABLE},application/json", "curl/8", b"application/json", 9),
        (f"{TABLE},application/yaml", "kubectl", b"application/yaml", 7),
        (TABLE, "kubectl", b"application/json", 9),
        ("text/html", "kubectl", b"application/json", 9),
    ],
)
def test_a_refusal_is_not_converted(accept, agent, media, lines):
    """A client that accepts none of our formats gets JSON as Go's MarshalIndent writes it, without a final newline (WriteRawJSON)."""
    req = asked(agent)
    req.headers[0] = (b"accept", accept.encode())
    answer = status(req, ApiError(404, "NotFound", "a"))
    assert dict(answer.headers)[b"content-type"] == media
    assert len(answer.body.splitlines()) == lines
    assert answer.body.endswith(b"\n") == (lines == 1 or media.endswith(b"yaml"))
