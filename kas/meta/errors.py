"""``ApiError``, the only error that clients see, rendered as a ``metav1.Status``.

The constructors mirror apimachinery's ``pkg/api/errors``. Their messages are upstream's, because clients parse some of them. This module
imports nothing of kas but the compiled unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kas._fastpath import go_quote

if TYPE_CHECKING:
    from kas.meta.field import FieldError


# The header that upstream sets on refusals before there is a handler (``responsewriters.RespondWithError``).
NOSNIFF = {"x-content-type-options": "nosniff"}


class ApiError(Exception):
    """An error response in Kubernetes' form.

    ``code`` is the HTTP status, ``reason`` a metav1.StatusReason ("" when upstream omits it), ``details`` the StatusDetails dict or None,
    ``headers`` are extra response headers (lower case, for example ``retry-after``).
    """

    __slots__ = ("code", "details", "headers", "message", "reason")

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details, self.headers = code, reason, message, details, headers

    def __repr__(self) -> str:
        return f"ApiError({self.code}, {self.reason!r}, {self.message!r})"

    def status(self) -> dict[str, Any]:
        """The metav1.Status object, its keys in upstream's output order."""
        out: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        if self.message:
            out["message"] = self.message
        if self.reason:
            out["reason"] = self.reason
        if self.details is not None:
            out["details"] = self.details
        out["code"] = self.code
        return out


def qualified(group: str, resource: str) -> str:
    """``GroupResource.String()``: ``deployments.apps``, or the bare name in the core group."""
    return f"{resource}.{group}" if group else resource


def _details(group: str, kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    # The output order of StatusDetails: name, group, kind, uid, causes, retryAfterSeconds; empty ones are omitted.
    out: dict[str, Any] = {}
    if name:
        out["name"] = name
    if group:
        out["group"] = group
    if kind:
        out["kind"] = kind
    if more:
        for key in ("uid", "causes", "retryAfterSeconds"):
            if more.get(key):
                out[key] = more[key]
    return out


def bad_request(message: str) -> ApiError:
    """400 BadRequest."""
    return ApiError(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> ApiError:
    """401 Unauthorized. The message gives no details; the reason why a credential failed belongs in the log."""
    return ApiError(401, "Unauthorized", message)


def forbidden(group: str, resource: str, name: str, why: str) -> ApiError:
    """403 Forbidden, ``errors.NewForbidden``: ``pods "a" is forbidden: why``; without a name, the message starts with the resource alone.
    """
    if not resource:
        message = f"forbidden: {why}"
    elif name:
        message = f"{qualified(group, resource)} {go_quote(name)} is forbidden: {why}"
    else:
        message = f"{qualified(group, resource)} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, _details(group, resource, name))


def not_found(group: str, resource: str, name: str) -> ApiError:
    """404 NotFound with the object in its details, in upstream's words, which clients parse."""
    return ApiError(404, "NotFound", f"{qualified(group, resource)} {go_quote(name)} not found", _details(group, resource, name))


def generic_not_found() -> ApiError:
    """404 NotFound for a path that no handler serves."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_supported(group: str, resource: str, action: str) -> ApiError:
    """405 MethodNotAllowed; ``action`` is the verb of the request."""
    message = f'{action} is not supported on resources of kind "{qualified(group, resource)}"'
    return ApiError(405, "MethodNotAllowed", message, _details(group, resource))


def already_exists(group: str, resource: str, name: str) -> ApiError:
    """409 AlreadyExists for a create whose name is taken."""
    message = f"{qualified(group, resource)} {go_quote(name)} already exists"
    return ApiError(409, "AlreadyExists", message, _details(group, resource, name))


def generate_name_conflict(group: str, resource: str, name: str, retry_after_s: int = 1) -> ApiError:
    """409 AlreadyExists for a create whose generated name was taken; the client may retry."""
    why = "the server was not able to generate a unique name for the object"
    message = f"{qualified(group, resource)} {go_quote(name)} already exists, {why}"
    return ApiError(409, "AlreadyExists", message, _details(group, resource, name, retryAfterSeconds=retry_after_s))


def conflict(group: str, resource: str, name: str, why: str) -> ApiError:
    """409 Conflict for a write that lost a race; ``why`` ends the message, like upstream's inner error."""
    message = f"Operation cannot be fulfilled on {qualified(group, resource)} {go_quote(name)}: {why}"
    return ApiError(409, "Conflict", message, _details(group, resource, name))


OBJECT_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def apply_conflict(message: str, causes: Sequence[dict[str, str]]) -> ApiError:
    """409 Conflict for a server-side apply; ``causes`` name the manager and field of each conflict (KEP-555)."""
    return ApiError(409, "Conflict", message, {"causes": list(causes)})


def gone(message: str) -> ApiError:
    """410 Gone, the reason that old watch caches used."""
    return ApiError(410, "Gone", message)


def expired(message: str) -> ApiError:
    """410 Expired: the requested revision is compacted, or a continue token is too old."""
    return ApiError(410, "Expired", message)


# Upstream reports all errors. An error may print a whole list, and there may be one per item, so an answer could grow with the square of
# the request: at most MAX_CAUSES errors are printed, and none once MAX_PRINTED characters have been printed.
MAX_CAUSES, MAX_PRINTED = 1_000, 1 << 20
# The most characters printed of a single text.
MAX_TEXT = 1 << 16


def shortened(text: str) -> str:
    """``text``, cut to ``MAX_TEXT`` characters with a note of its length."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


def _told(e: FieldError) -> str:
    """The text of an error without its path. Long values are cut before quoting: quoting megabytes is a single step of the interpreter."""
    if isinstance(e.value, str) and len(e.value) > MAX_TEXT:
        begun = type(e)(e.type, e.field, e.value[:MAX_TEXT], "").error_body()
        if len(begun) > MAX_TEXT:
            return f"{begun[:MAX_TEXT]}... ({len(e.value)} characters)"
    return shortened(e.error_body())


def printed(errors: Sequence[FieldError]) -> tuple[list[tuple[FieldError, str]], str]:
    """The field errors to print, each with its text without the path, and a note about the remaining ones ("" if none)."""
    out: list[tuple[FieldError, str]] = []
    size = 0
    for e in errors:
        if len(out) >= MAX_CAUSES or size >= MAX_PRINTED:
            return out, f"and {len(errors) - len(out)} more"
        text = _told(e)
        size += len(text) + len(e.field)
        out.append((e, text))
    return out, ""


def _aggregate(told: Iterable[tuple[FieldError, str]], rest: str) -> str:
    texts = list(dict.fromkeys(f"{shortened(e.field)}: {text}" for e, text in told))
    if rest:
        texts.append(rest)
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]" if texts else "<nil>"


def aggregate(errors: Iterable[FieldError]) -> str:
    """``utilerrors.Aggregate``: duplicates are dropped, and several messages are enclosed in brackets. Bounded like ``invalid``."""
    return _aggregate(*printed(list(errors)))


class Invalid(ApiError):
    """422 Invalid with field errors: ``found`` are those of the object with this group, kind and name."""

    __slots__ = ("about", "found")

    def __init__(self, group: str, kind: str, name: str, found: list[FieldError]) -> None:
        self.about, self.found = (group, kind, name), found
        told, rest = printed(found)
        causes = [{"reason": e.type, "message": text, "field": shortened(e.field)} for e, text in told]
        name = shortened(name)
        message = f"{qualified(group, kind)} {go_quote(name)} is invalid: {_aggregate(told, rest)}"
        super().__init__(422, "Invalid", message, _details(group, kind, name, causes=causes))

    def after(self, found: list[FieldError]) -> Invalid:
        """This error with the errors ``found`` in front."""
        return Invalid(*self.about, [*found, *self.found])


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> Invalid:
    """422 Invalid, ``errors.NewInvalid``: every field error becomes a cause, and the message is their aggregate. At most ``MAX_CAUSES`` are
    included, and none after ``MAX_PRINTED`` characters; the message ends with the number of the others.
    """
    return Invalid(group, kind, name, list(errors))


def not_acceptable(message: str) -> ApiError:
    """406 NotAcceptable: no media type of the Accept header can be served."""
    return ApiError(406, "NotAcceptable", message)


def unsupported_media_type(message: str) -> ApiError:
    """415 UnsupportedMediaType for a request body."""
    return ApiError(415, "UnsupportedMediaType", message)


def request_entity_too_large(message: str) -> ApiError:
    """413 RequestEntityTooLarge; ``message`` names the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def too_many_requests(message: str, retry_after_s: int) -> ApiError:
    """429 TooManyRequests with Retry-After, in seconds, as header and detail."""
    return ApiError(
        429, "TooManyRequests", message, {"retryAfterSeconds": retry_after_s}, {"retry-after": str(retry_after_s)}
    )


def internal(message: str) -> ApiError:
    """500 InternalError; like upstream, it prefixes the message and repeats the bare text as a cause."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def service_unavailable(message: str, retry_after_s: int = 0) -> ApiError:
    """503 ServiceUnavailable; with ``retry_after_s`` above 0 also Retry-After, in seconds."""
    if not retry_after_s:
        return ApiError(503, "ServiceUnavailable", message)
    return ApiError(503, "ServiceUnavailable", message, {"retryAfterSeconds": retry_after_s}, {"retry-after": str(retry_after_s)})


def timeout(message: str, retry_after_s: int = 0) -> ApiError:
    """504 Timeout; with ``retry_after_s`` above 0 also Retry-After, in seconds."""
    details = {"retryAfterSeconds": retry_after_s} if retry_after_s else {}
    headers = {"retry-after": str(retry_after_s)} if retry_after_s else None
    return ApiError(504, "Timeout", f"Timeout: {message}", details, headers)
