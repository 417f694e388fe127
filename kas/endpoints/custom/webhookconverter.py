"""Conversion strategy Webhook: converts custom resources by calling a webhook (ConversionReview v1 and v1beta1).

Upstream: apiextensions-apiserver ``pkg/apiserver/conversion/webhook_converter.go``. When it reads the store, upstream sends one object
per review. Here a batch is one review, or several in sequence if it is large, so that each response stays within the size limit.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterator, Sequence
from time import monotonic
from typing import Any

import orjson

from kas.apiextensions import customtypes
from kas.apiextensions.definition import Definition
from kas.client.hooks import HookClients, HookError, client_key, read_review, said_kind
from kas.endpoints.custom.conversionmetrics import CALL, INVALID, MALFORMED, NOTHING, PARTIAL, ConversionMetrics
from kas.meta import errors, gojson
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.meta.labelselectors import labels as validate_labels
from kas.meta.objectmeta import validate_annotations
from kas.meta.offload import LARGE, is_large, step
from kas.registry.versions import GVK
from kas.types.scheme import builtin_kind, write_json

Obj = dict[str, Any]
GROUP, KIND = "apiextensions.k8s.io", "ConversionReview"
VERSIONS = {version: f"{GROUP}/{version}" for version in ("v1", "v1beta1")}
TIMEOUT_S = 30.0
MAX_SENT = 1 << 20  # bytes of the objects in one review, unless it has a single one
_KNOWN = frozenset(
    (api_version, kind) for api_version in VERSIONS.values() for kind in (KIND, "CustomResourceDefinition", "CustomResourceDefinitionList")
)
_NO_RESPONSE: Obj = {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}  # upstream sends an empty response
_SAME = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
_GO_TYPES = {
    type(None): "<nil>", bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}",
    dict: "map[string]interface {}",
}  # fmt: skip


class _BadAnswerError(Exception):
    """Why a response cannot be used."""


class _FailedError(Exception):
    """The webhook returned nothing usable; ``why`` is the failure type for the metrics."""

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why


class WebhookConverter:
    """A ``kas.registry.versions.Converter`` for the objects of one definition with strategy Webhook."""

    total = False

    def __init__(self, d: Definition, clients: HookClients, metrics: ConversionMetrics) -> None:
        self._clients, self._metrics, self._name = clients, metrics, d.name
        # In the stored form (v1beta1), or as written directly to the store (v1).
        webhook = d.conversion.get("webhook") or {}
        self._config: Obj = d.conversion.get("webhookClientConfig") or webhook.get("clientConfig") or {}
        self._key = client_key(self._config)
        versions = d.conversion.get("conversionReviewVersions") or webhook.get("conversionReviewVersions") or ()
        self._version = next((v for v in versions if v in VERSIONS), None)
        self._known = frozenset(f"{d.group}/{v.name}" for v in d.versions)

    def convert(self, objects: Sequence[Obj], target: GVK) -> list[Obj] | Awaitable[list[Obj]]:
        """Return the objects in the target version, in order. Objects that already have it are not sent.

        In metadata the webhook may change only labels and annotations. Raises ApiError (500) if the webhook cannot be called, fails or
        changes anything else.
        """
        api_version = f"{target[0]}/{target[1]}"
        places = [i for i, obj in enumerate(objects) if obj["apiVersion"] != api_version]
        for i in places:
            # Stored in a version that the definition no longer has, so nothing can interpret it.
            if objects[i]["apiVersion"] not in self._known:
                raise _failure(f"request to convert CR from an invalid group/version: {objects[i]['apiVersion']}")
        return self._convert(objects, places, api_version) if places else list(objects)

    async def _convert(self, objects: Sequence[Obj], places: Sequence[int], api_version: str) -> list[Obj]:
        out = list(objects)
        done, began, succeeded = 0, monotonic(), False
        before, after = (text.rpartition("/")[2] for text in (objects[places[0]]["apiVersion"], api_version))
        parts, large = _batches(objects, places), is_large([objects[i] for i in places])
        try:
            while done < len(places):
                sent = await step(large, next, parts)
                found = await self._convert_batch(objects, places[done : done + len(sent)], sent, api_version)
                for n, value in enumerate(found):
                    out[places[done + n]] = value
                done += len(sent)
            succeeded = True
        finally:
            self._metrics.converted(self._name, before, after, monotonic() - began, succeeded)
        return out

    async def _convert_batch(self, objects: Sequence[Obj], places: Sequence[int], sent: list[bytes], api_version: str) -> list[Obj]:
        """Convert some objects with one review, and check and count the result."""
        originals, began, failure = [objects[i] for i in places], monotonic(), CALL
        try:
            found, large = await self._call(originals, sent, api_version)
            failure = INVALID
            made = await step(large, _all_checked, originals, found, api_version)
            failure = ""
        except _FailedError as e:
            failure = e.why
            raise _failure(str(e)) from None
        finally:
            self._metrics.called(monotonic() - began, failure)
        return made

    async def _call(self, originals: Sequence[Obj], sent: list[bytes], api_version: str) -> tuple[list[Any], bool]:
        """Call the webhook. Returns the converted objects and whether the response is large; ``sent`` is the JSON of the originals.

        Raises _FailedError.
        """
        if self._version is None:
            raise _FailedError(CALL, "no supported conversion review versions")
        uid, gvk = str(uuid.uuid4()), _gvk(originals[0])
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": [orjson.Fragment(text) for text in sent]}
        review = orjson.dumps({"kind": KIND, "apiVersion": VERSIONS[self._version], "request": request, "response": _NO_RESPONSE})
        try:
            answer = await (await self._clients.ready(self._config, self._key)).post(review, TIMEOUT_S)
            large = len(answer) >= LARGE
            found = await step(large, _converted, answer, self._version, uid)
        except (HookError, _BadAnswerError) as e:
            if isinstance(e, HookError):
                self._metrics.outdated.seen(e)
            raise _FailedError(CALL if isinstance(e, HookError) else MALFORMED, f"conversion webhook for {gvk} failed: {e}") from None
        if len(found) != len(sent):
            why = PARTIAL if len(sent) > 1 else NOTHING
            raise _FailedError(why, f"conversion webhook for {gvk} returned {len(found)} objects, expected {len(sent)}")
        return found, large


def _batches(objects: Sequence[Obj], places: Sequence[int]) -> Iterator[list[bytes]]:
    """Yield the JSON of the objects at these places, grouped by what fits in one review; at least one object each."""
    part: list[bytes] = []
    size = 0
    for i in places:
        text = write_json(objects[i])
        if part and size + len(text) > MAX_SENT:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    yield part


def _converted(answer: bytes, version: str, uid: str) -> list[Any]:
    """Return the objects of a response, unchecked.

    Raises HookError if it is not a review, and _BadAnswerError for a failure or if it does not answer the review ``uid``.
    """
    wanted = VERSIONS[version], KIND
    review = read_review(answer, wanted, _KNOWN, builtin_kind(GROUP, version, KIND).type)
    found = review.get("response")
    # v1beta1 does not check the response's type.
    if version == "v1" and (review["apiVersion"], review["kind"]) != wanted:
        raise _BadAnswerError(f"expected webhook response of {wanted[0]}, Kind={KIND}, got {said_kind(review)}")
    if found is None:
        raise _BadAnswerError("no response provided")
    if version == "v1" and (found.get("uid") or "") != uid:
        raise _BadAnswerError(f"expected response.uid={go_quote(uid)}, got {go_quote(found.get('uid') or '')}")
    result = found.get("result") or {}
    status = result.get("status") or ""
    if status != "Success":
        raise _BadAnswerError(result.get("message") or f"response.result.status was '{status}', not 'Success'")
    objects: list[Any] = found.get("convertedObjects") or []
    customtypes.as_floats(objects, answer)
    return objects


def _all_checked(originals: Sequence[Obj], found: Sequence[Any], api_version: str) -> list[Obj]:
    """Return ``_checked`` for each object."""
    return [_checked(original, value, api_version) for original, value in zip(originals, found, strict=True)]


def _checked(original: Obj, value: Any, api_version: str) -> Obj:
    """Return the converted object with its original metadata restored.

    Raises ApiError, whose message names index 0 because upstream sends each object alone.
    """
    returned = f"conversion webhook for {_gvk(original)} returned invalid"
    if value is None:
        raise _failure("unexpected end of JSON input")
    if not isinstance(value, dict):
        raise _failure(gojson.cannot_unmarshal(value, "map[string]interface {}"))
    given = value["apiVersion"] if _is_text(value.get("apiVersion")) else ""
    if not _is_text(value.get("kind")) or given.count("/") > 1:  # an object without a version has no kind either
        raise _failure(f"Object 'Kind' is missing in '{write_json(value).decode()[:256]}'")
    if given != api_version:
        raise _failure(f"{returned} object at index 0: invalid groupVersion (expected {api_version}, received {given})")
    if value["kind"] != original["kind"]:
        raise _failure(f"{returned} object at index 0: invalid kind (expected {original['kind']}, received {value['kind']})")
    meta, original_meta = value.get("metadata"), original.get("metadata") or {}
    converted_meta = meta if isinstance(meta, dict) else {}
    for key, shown in _SAME:
        before, after = original_meta.get(key) or "", converted_meta.get(key)
        after = after if _is_text(after) else ""
        if before != after:
            raise _failure(f"{returned} object: must have the same {shown}: {before} != {after}")
    try:
        return {**value, "metadata": _restored(original_meta, value)}
    except _BadAnswerError as e:
        raise _failure(f"{returned} metadata: {e}") from None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _restored(original_meta: Obj, value: Obj) -> Obj:
    """Return the original metadata with the labels and annotations of the converted object ``value``."""
    if "metadata" not in value:
        raise _BadAnswerError("missing metadata in converted object")
    converted_meta = value["metadata"]
    if not isinstance(converted_meta, dict):
        raise _BadAnswerError(f"invalid metadata of type {_go_type(converted_meta)} in converted object")
    out = {k: v for k, v in original_meta.items() if k not in ("labels", "annotations")}
    for name in ("labels", "annotations"):
        new = converted_meta.get(name)
        if new is None:
            continue
        if not isinstance(new, dict):
            raise _BadAnswerError(f"invalid metadata.{name} of type {_go_type(new)} in converted object")
        for key, text in new.items():
            if not isinstance(text, str):
                raise _BadAnswerError(f"metadata.{name}[{key}] must be a string, but is {_go_type(text)} in converted object")
        if new != (original_meta.get(name) or {}):  # unchanged values are kept without validation
            labels = name == "labels"
            wrong = validate_labels(new, "metadata.labels") if labels else validate_annotations(new, "metadata.annotation")
            if wrong:
                raise _BadAnswerError(errors.aggregate(wrong))
        out[name] = new
    return out


def _gvk(obj: Obj) -> str:
    return f"{obj['apiVersion']}, Kind={obj['kind']}"


def _go_type(value: Any) -> str:
    return _GO_TYPES[type(value)]


def _failure(message: str) -> ApiError:
    return ApiError(500, "", message)
