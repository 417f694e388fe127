"""Dispatches requests for custom resources (``ServeHTTP`` in apiextensions-apiserver ``pkg/apiserver/customresource_handler.go``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kas.endpoints import read, respond
from kas.endpoints.custom.served import CustomServed
from kas.endpoints.custom.table import CustomResources
from kas.endpoints.rest import Rest
from kas.endpoints.scale import Scale
from kas.endpoints.watch import watch
from kas.meta import errors
from kas.meta.offload import POOL
from kas.meta.waiting import awaited
from kas.request.http import Headers, Request, Response, Result, with_body
from kas.request.negotiation import (
    CUSTOM,
    CUSTOM_PATCH_TYPES,
    JSON,
    PROTOBUF,
    negotiate,
    unsupported,
)

# Verbs that are allowed on a namespaced resource without a namespace.
_ACROSS_NAMESPACES = frozenset({"list", "watch"})


class CustomHandler:
    """Handler for the paths of custom resources; the verbs are those of ``rest``."""

    def __init__(self, resources: CustomResources, rest: Rest, scale: Scale) -> None:
        self._resources, self._rest, self._scale = resources, rest, scale

    def __call__(self, req: Request) -> Result | None:
        """Return the response, or None if the path does not belong to a custom resource."""
        info = req.info
        if not info.is_resource_request:
            return None
        served = self._resources.find(info.api_group, info.api_version, info.resource)
        if served is None or not _in_scope(served, info.namespace, info.verb):
            return respond.not_found() if info.api_group in self._resources.groups else None
        req.known = True
        if not served.loaded:
            return self._load_and_handle(req, served)
        if served.deprecation is not None:
            served.deprecation.tell(req)
        verbs = self._verbs(served, info.subresource)
        if verbs is None:
            raise errors.not_found(info.api_group, info.resource, info.name)
        if b"protobuf" in req.raw_header(b"accept"):
            return _handle_without_protobuf(req, served, verbs)
        return verbs(req, served)

    def _verbs(self, served: CustomServed, subresource: str) -> Callable[[Request, CustomServed], Result] | None:
        """Return the handler of the resource or one of its subresources, or None if there is no such subresource."""
        if not subresource:
            return self._main
        if subresource == "status" and served.defined.status:
            return self._status
        return self._scaled if subresource == "scale" and served.defined.scale is not None else None

    async def _load_and_handle(self, req: Request, served: CustomServed) -> Response:
        """Handle the first request for a version after its schema, which may have megabytes, is loaded in the thread pool."""
        await POOL.run(served.load)
        found = self(req)  # the definition may have changed or been deleted meanwhile
        return respond.not_found() if found is None else await awaited(found)

    def _main(self, req: Request, served: CustomServed) -> Result:
        rest, info = self._rest, req.info
        verb, namespace, name = info.verb, info.namespace, info.name
        if verb == "get":
            return read.get(req, served, namespace, name)
        if verb == "list":
            return read.list_(req, served, namespace, name)
        if verb == "watch":
            respond.media(req)
            return watch(req, served, namespace, name, rest.watches)
        if verb == "create":
            return with_body(req, rest.writer.create, served, namespace)
        if verb == "update":
            _named(name)
            return with_body(req, rest.writer.update, served, namespace, name)
        if verb == "patch":
            check_patch_type(req)
            _named(name)
            return with_body(req, rest.patcher.patch, served, namespace, name)
        if verb == "delete":
            return with_body(req, rest.deleter.delete, served, namespace, name)
        if verb == "deletecollection":
            return with_body(req, rest.deleter.delete_collection, served, namespace)
        raise errors.method_not_supported(info.api_group, info.resource, verb)

    def _status(self, req: Request, served: CustomServed) -> Result:
        rest, info = self._rest, req.info
        if info.verb == "get":
            return read.get(req, served, info.namespace, info.name)
        if info.verb == "update":
            return with_body(req, rest.writer.update, served, info.namespace, info.name, "status")
        if info.verb == "patch":
            check_patch_type(req)
            return with_body(req, rest.patcher.patch, served, info.namespace, info.name, "status")
        raise errors.method_not_supported(info.api_group, info.resource, info.verb)

    def _scaled(self, req: Request, served: CustomServed) -> Result:
        info = req.info
        handler = {"get": self._scale.get, "update": self._scale.update, "patch": self._scale.patch}.get(info.verb)
        if handler is None:
            raise errors.method_not_supported(info.api_group, info.resource, info.verb)
        if info.verb == "patch":
            check_patch_type(req)
        return with_body(req, handler, served, info.namespace, info.name)


def _handle_without_protobuf(req: Request, served: CustomServed, verbs: Callable[[Request, CustomServed], Result]) -> Result:
    """Handle a request that accepts protobuf. Custom resources have no protobuf form, but errors do."""
    original_headers = req.headers
    try:
        without_protobuf(req, req.info.verb)
        found = verbs(req, served)
    except errors.ApiError:
        req.headers = original_headers
        raise
    return found if isinstance(found, Response) else _restore_headers_on_error(req, original_headers, found)


async def _restore_headers_on_error(req: Request, original_headers: Headers, pending: Awaitable[Response]) -> Response:
    try:
        return await pending
    except errors.ApiError:
        req.headers = original_headers
        raise


def _named(name: str) -> None:
    """Raise 400 for an empty name, before the body is decoded; built-in resources have no such path."""
    if not name:
        raise errors.bad_request("name must be provided")


def _in_scope(served: CustomServed, namespace: str, verb: str) -> bool:
    """Return whether a resource of this scope has such a path."""
    if served.record.namespaced:
        return bool(namespace) or verb in _ACROSS_NAMESPACES
    return not namespace


def check_patch_type(req: Request) -> None:
    """Raise 415 for a content type that is not a patch of custom resources."""
    if req.header(b"content-type").partition(";")[0].strip() not in CUSTOM_PATCH_TYPES:
        raise unsupported(CUSTOM_PATCH_TYPES)


def without_protobuf(req: Request, verb: str) -> None:
    """Replace Accept by the next type that the client accepts, because custom resources have no protobuf form. Raises 406."""
    accept = req.raw_header(b"accept").decode("latin-1")
    found = negotiate(accept, CUSTOM)
    if found.media_type == PROTOBUF and not (verb == "list" and found.convert is not None and found.convert.kind == respond.PARTIAL):
        return  # metadata has a protobuf form; the error for a list as a single object is sent in JSON
    text = JSON if found.media_type == PROTOBUF else found.media_type
    if found.convert is not None:
        text += f";as={found.convert.kind};v={found.convert.version};g={found.convert.group}"
    if found.stream:
        text += f";stream={found.stream}"
    req.headers = [(name, value) for name, value in req.headers if name != b"accept"] + [(b"accept", text.encode("latin-1"))]
