"""Errors for responses of other servers that are not a Status (apimachinery's ``errors.NewGenericServerResponse``)."""

from __future__ import annotations

from kas.meta.field import go_quote

_SAID = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    409: ("Conflict", "the server reported a conflict"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted, but may still be processing the request"),
}
# Status codes for which the response's own text is used.
_QUOTED = {403: "Forbidden", 406: "NotAcceptable", 415: "UnsupportedMediaType"}


def generic_server_response(code: int, said: str) -> tuple[str, str]:
    """(reason, message) for a response with this status code and text ("unknown" when there was none)."""
    if code in _SAID:
        return _SAID[code]
    if code == 406 and said in ("", "unknown"):
        return _QUOTED[code], "the server was unable to respond with a content type that the client supports"
    if code in _QUOTED:
        return _QUOTED[code], said
    if code >= 500:
        return "InternalError", f"an error on the server ({go_quote(said)}) has prevented the request from succeeding"
    return "Unknown", f"the server responded with the status code {code} but did not return more information"
