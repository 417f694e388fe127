"""AdmissionReview v1 and v1beta1: what is sent to a webhook, and how its answer is read (upstream ``plugin/webhook/request``)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kas.admission import Attributes
from kas.admission.description import about, operation_options
from kas.admission.matching import GVK, Invocation
from kas.admission.webhook._texts import Texts
from kas.admission.webhook.hooks import REVIEW_VERSIONS
from kas.client.hooks import HookError, read_review, said_kind
from kas.meta import names
from kas.meta.field import go_quote
from kas.meta.records import NamedTuple
from kas.types.scheme import builtin_kind

Obj = dict[str, Any]
KIND = "AdmissionReview"
VERSIONS = {version: f"admission.k8s.io/{version}" for version in REVIEW_VERSIONS}
_KNOWN = frozenset((api_version, KIND) for api_version in VERSIONS.values())
JSON_PATCH = "JSONPatch"
_PLAIN, _OUTER = {"uid", "allowed"}, {"kind", "apiVersion", "response"}
# Per answer. Each warning is a header, and many clients accept no more than a hundred; longer warnings are truncated.
MAX_WARNINGS, MAX_WARNING = 64, 4_097
MAX_ABOUT = 64  # cached descriptions of kinds and resources, about 500 bytes each
MAX_KEPT = 4 << 10  # longer answers and identities are not cached
DescriptionKey = tuple[Invocation, GVK, str, str, str, str]


class InvalidResponseError(Exception):
    """An answer that is not valid for the review that was sent."""


class Response(NamedTuple):
    """A webhook's decision. ``status`` is its metav1.Status, ``patch`` a JSON patch as text."""

    allowed: bool
    status: Obj
    patch: bytes = b""
    patch_type: str = ""
    warnings: Sequence[str] = ()
    annotations: Mapping[str, str] = {}


class Reviews(Texts):
    """Builds the reviews for one webhook and caches its last answer. ``version`` is the version of the reviews."""

    def __init__(self, version: str, mutating: bool) -> None:
        super().__init__(f'{{"kind":"{KIND}","apiVersion":"{VERSIONS[version]}","request":{{"uid":"'.encode(), MAX_KEPT)
        self._version, self._mutating = version, mutating
        self._descriptions: dict[DescriptionKey, bytes] = {}
        self.options = operation_options

    def about(self, a: Attributes, shown: Invocation, own: GVK) -> bytes:
        """Return the kind and resource fields of a review, cached."""
        key = shown, own, a.group, a.version, a.resource, a.subresource
        said = self._descriptions.get(key)
        if said is None:
            if len(self._descriptions) >= MAX_ABOUT:
                self._descriptions.clear()
            said = self._descriptions[key] = orjson.dumps(about(a, shown, own))[1:-1]
        return said

    def read(self, body: bytes, uid: str) -> Response:
        """Read an answer that differs from the cached one in more than the uid."""
        found = response(body, self._version, uid, self._mutating)
        # An answer that differs only in the uid has the same meaning, unless it quotes the uid elsewhere: most webhooks' answer is parsed
        # once.
        before, uid_bytes, after = body.partition(uid.encode())
        shown = found.status, found.warnings, found.annotations
        if uid_bytes and len(body) <= MAX_KEPT and uid_bytes not in after and uid_bytes not in orjson.dumps(shown):
            self.keep(before, after, found)
        return found


def response(body: bytes, version: str, uid: str, mutating: bool) -> Response:
    """Return the decision in an answer. Raises HookError for what is not a review, InvalidResponseError for one that does not fit the
    request."""
    quick = _plain(body, version, uid)
    if quick is not None:
        return quick
    kind = builtin_kind("admission.k8s.io", version, KIND)
    review = read_review(body, (VERSIONS[version], KIND), _KNOWN, kind.type)
    found = review.get("response")
    if found is None:
        raise InvalidResponseError("webhook response was absent")
    patch, patch_type = base64.b64decode(found.get("patch") or ""), found.get("patchType")
    if version == "v1":
        _check(review, found, uid)
        if mutating:
            if patch and patch_type is None:
                raise InvalidResponseError("webhook returned response.patch but not response.patchType")
            if not patch and patch_type is not None:
                raise InvalidResponseError("webhook returned response.patchType but not response.patch")
            if patch_type == "":
                raise InvalidResponseError('webhook returned invalid response.patchType of ""')
        elif patch or patch_type is not None:
            raise InvalidResponseError(f"validating webhook may not return response.{'patch' if patch else 'patchType'}")
    else:
        patch_type = JSON_PATCH if patch else ""
    return Response(
        bool(found.get("allowed")), found.get("status") or {}, patch if mutating else b"", patch_type or "",
        [w[:MAX_WARNING] for w in (found.get("warnings") or ())[:MAX_WARNINGS] if w], found.get("auditAnnotations") or {},
    )  # fmt: skip


def _plain(body: bytes, version: str, uid: str) -> Response | None:
    """Return the decision of an answer that contains only uid and allowed, as most do, so that nothing else needs a check; None for any
    other."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if type(review) is not dict or review.get("kind") != KIND or review.get("apiVersion") != VERSIONS[version]:
        return None
    found = review.get("response")
    if type(found) is not dict or found.keys() != _PLAIN or found["uid"] != uid or type(found["allowed"]) is not bool:
        return None
    return Response(found["allowed"], {}) if review.keys() == _OUTER else None


def _check(review: Obj, found: Obj, uid: str) -> None:
    given = found.get("uid") or ""
    if given != uid:
        raise InvalidResponseError(f"expected response.uid={go_quote(uid)}, got {go_quote(given)}")
    if (review["apiVersion"], review["kind"]) != (VERSIONS["v1"], KIND):
        raise InvalidResponseError(f"expected webhook response of {VERSIONS['v1']}, Kind={KIND}, got {said_kind(review)}")


def annotation_key(hook: str, key: str) -> str | None:
    """Return the key of a webhook's audit annotation; None if it is not a qualified name."""
    full = f"{hook}/{key}"
    return None if names.is_qualified_name(full) else full


__all__ = ["HookError", "InvalidResponseError", "Response", "Reviews", "annotation_key", "response"]
