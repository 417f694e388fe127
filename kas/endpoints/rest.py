"""REST resources: finds the handler for a verb on a resource or subresource (apiserver's ``endpoints/installer.go``).

The request body is read here, and only after a handler that takes one has been found. A request that is refused earlier costs no more
than its headers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from typing import TYPE_CHECKING, Any

from kas._fastpath import HandlerCache
from kas.endpoints import deprecation, read
from kas.endpoints.delete import Deleter
from kas.endpoints.patching import Patcher
from kas.endpoints.served import Served, go_types
from kas.endpoints.watch import Watches, watch
from kas.endpoints.write import Writer
from kas.meta import errors
from kas.meta.waiting import awaited
from kas.registry.versions import Family
from kas.request.http import Request, Response, Result, with_body
from kas.request.negotiation import JSON, PROTOBUF, YAML

if TYPE_CHECKING:
    from kas.endpoints.decryptahead import DecryptAhead

# (request, served, namespace, name) -> answer
Handler = Callable[[Request, Any, str, str], Result]

NOT_ALLOWED = "the server does not allow this method on the requested resource"


READ_TYPES = (JSON, YAML, PROTOBUF)
LIST_TYPES = (*READ_TYPES, f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")
MEMO_SIZE = 1024
_acceptable: set[tuple[bytes, int]] = set()


def check_accept(req: Request, produced: tuple[str, ...]) -> None:
    """Check Accept as upstream's router does before content negotiation: of the wildcards, only ``*/*`` matches. Raises 406."""
    accept = req.raw_header(b"accept")
    if not accept or (accept, len(produced)) in _acceptable:
        return
    for clause in accept.decode("latin-1").split(","):
        media = clause.partition(";")[0].strip()
        if media == "*/*" or media in produced:
            if len(_acceptable) >= MEMO_SIZE:
                _acceptable.clear()
            if len(accept) < 1024:
                _acceptable.add((accept, len(produced)))
            return
    raise not_acceptable(produced)


def not_acceptable(produced: tuple[str, ...]) -> errors.ApiError:
    """Return the 406 of upstream's router, which lists the media types in ``produced``."""
    shown = ", ".join(produced)
    return errors.ApiError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {shown}", {})


def method_not_allowed() -> errors.ApiError:
    """Return the 405 of upstream's router."""
    return errors.ApiError(405, "MethodNotAllowed", NOT_ALLOWED, {})


class Rest:
    """The table of served resources, and the dispatcher of requests to them.

    ``resources[group, version][plural]`` is a ``Served``, or a ``Virtual`` for kinds that are not stored.
    """

    def __init__(self, writer: Writer, deleter: Deleter, watches: Watches) -> None:
        self.writer, self.patcher, self.deleter, self.watches = writer, Patcher(writer), deleter, watches
        self._named: dict[str, Handler] = {"update": writer.update, "patch": self.patcher.patch, "delete": deleter.delete}
        self.resources: dict[tuple[str, str], dict[str, Any]] = {}
        self._straight = HandlerCache(_acceptable, len(READ_TYPES), with_body)
        self._equivalents: dict[tuple[str, str], Family] = {}  # filled on demand; bounded by the number of served resources
        self.subresources: dict[tuple[str, str, str], dict[str, Handler]] = {}
        # Groups whose kinds are not loaded yet, and the callback for the first request to one of them (kas.warmup).
        self.cold: Set[str] = frozenset()
        self.ask: Callable[[str], object] = lambda group: None
        self.decrypt_ahead: DecryptAhead | None = None  # set where a KMS plug-in may have to be called for the key of a value

    def add(self, served: Any) -> None:
        """Serve one more resource, or replace the one of the same group, version and plural."""
        self._straight.clear()
        self._equivalents.clear()
        self.resources.setdefault((served.group, served.version), {})[served.resource] = served

    def of_kind(self, group: str, version: str, kind: str) -> list[Any]:
        """Return the records of the served resources of a kind."""
        return [r.record for r in (self.resources.get((group, version)) or {}).values() if r.kind == kind]

    def equivalents(self, group: str, resource: str) -> Family:
        """Return the resources that serve the same objects, in other versions or in other groups, including the given one."""
        known = self._equivalents.get((group, resource))
        if known is not None:
            return known
        all_ = [served for found in self.resources.values() if (served := found.get(resource)) is not None]
        roots = {served.registry.root for served in all_ if served.group == group and isinstance(served, Served)}
        out = Family(s for s in all_ if s.group == group or (isinstance(s, Served) and s.registry.root in roots))
        if out:
            self._equivalents[group, resource] = out
        return out

    def subresource(self, group: str, resource: str, name: str, **verbs: Handler) -> None:
        """Register the handlers of a subresource for every version of its resource. Verbs are get, create, update, patch and delete."""
        self.subresources[group, resource, name] = verbs

    def handle(self, req: Request) -> Result:
        """Find the handler for the request's resource and verb, and call it.

        Raises 404 for an unknown resource and 405 for an unsupported verb.
        """
        if self.decrypt_ahead is not None and (pending := self.decrypt_ahead.begun(req, self.resources)) is not None:
            return self._handle_decrypted(req, pending)
        return self._handle(req)

    async def _handle_decrypted(self, req: Request, pending: Awaitable[None]) -> Response:
        """Handle the request after the values it reads are decrypted; the KMS plug-in is called outside the event loop."""
        await pending
        return await awaited(self._handle(req))

    def _handle(self, req: Request) -> Result:
        answer = self._straight.answer(req)
        if answer is not None:
            return answer
        info = req.info
        found = self.resources.get((info.api_group, info.api_version))
        served = found.get(info.resource) if found is not None else None
        if served is None:
            raise errors.generic_not_found()
        record = served.record
        if record.group in self.cold:
            self.ask(record.group)
        verb, name = info.verb, info.name
        if verb == "proxy":
            raise errors.generic_not_found()  # a path below /proxy/; those routes were removed
        if not info.subresource:
            check_accept(req, LIST_TYPES if verb in ("list", "watch") else READ_TYPES)
        namespace = info.namespace if record.namespaced else ""
        if record.namespaced:
            # A list or watch that took its name from the field selector needs no namespace.
            if not namespace and (info.subresource or (name and len(info.parts or ()) > 1)):
                raise errors.generic_not_found()
        elif info.namespace and (info.resource != "namespaces" or info.namespace != name or req.path.count("/namespaces/") > 1):
            raise errors.generic_not_found()  # a Namespace may be addressed through itself, but not from within itself
        if info.subresource:
            return self._sub(req, served, namespace, name)
        if not isinstance(served, Served):
            return served.handle(req, verb, namespace, name)
        req.known = True
        if served.deprecation is not None and verb in record.verbs:
            served.deprecation.tell(req)
        if req.method == "HEAD" or (verb == "watch" and req.method != "GET"):
            raise method_not_allowed()  # a path below /watch/ is a watch whatever the method
        if verb not in record.verbs:
            raise method_not_allowed()
        if verb == "get":
            if record.namespaced or info.resource != "namespaces":
                self._straight.keep(verb, served, read.get, record.namespaced, True)
            return read.get(req, served, namespace, name)
        if verb == "list":
            return read.list_(req, served, namespace, name)
        if verb == "watch":
            return watch(req, served, namespace, name, self.watches)
        if record.namespaced and not namespace:
            raise method_not_allowed()  # writes must name their namespace
        if verb == "create":
            if name:
                raise method_not_allowed()
            self._straight.keep(verb, served, self.writer.create, record.namespaced, False)
            return with_body(req, self.writer.create, served, namespace)
        if verb == "deletecollection":
            return with_body(req, self.deleter.delete_collection, served, namespace)
        if not name:
            raise method_not_allowed()
        handler = self._named.get(verb)
        if handler is None:
            raise method_not_allowed()
        self._straight.keep(verb, served, handler, record.namespaced, True)
        return with_body(req, handler, served, namespace, name)

    def _sub(self, req: Request, served: Any, namespace: str, name: str) -> Result:
        sub = served.record.subresources.get(req.info.subresource)
        if sub is None:
            raise errors.generic_not_found()
        req.known = True
        verb = req.info.verb
        if served.deprecation is not None and sub.kind == served.kind and verb in sub.verbs:
            served.deprecation.tell(req)
        if not sub.connect and sub.name != "log":  # those two relay the response of another server
            check_accept(req, READ_TYPES)
        own = self.subresources.get((served.group, served.resource, sub.name))
        if own is not None:
            handler = own.get(verb)
            if handler is None or (req.method == "HEAD" and not sub.connect):
                raise method_not_allowed()
            if sub.connect and "dryRun" in req.params:
                raise errors.bad_request("dryRun is not supported")
            return with_body(req, handler, served, namespace, name)
        if verb not in sub.verbs or req.method == "HEAD":
            raise method_not_allowed()
        # All other subresources, such as status, are views of the object itself under another strategy.
        if verb == "get":
            return read.get(req, served, namespace, name)
        if verb not in ("update", "patch"):
            raise method_not_allowed()
        handler = self._named[verb]
        if sub.kind == served.kind and not sub.connect:
            self._straight.keep(verb, served, handler, served.record.namespaced, True, sub.name)
        return with_body(req, handler, served, namespace, name, sub.name)


class Virtual:
    """A resource that is computed and not stored, such as reviews (create only) and componentstatuses (get and list).

    ``verbs`` maps a verb to a handler with the signature of a subresource handler.
    """

    def __init__(self, record, **verbs: Handler) -> None:
        self.record, self._verbs = record, verbs
        self.group, self.version, self.resource, self.kind = record.group, record.version, record.resource, record.kind
        self.api_version = record.api_version
        self.type, self.subresources = record.type, record.subresources
        # The attributes that ``Served`` has and that respond reads to transform an object.
        self.columns = None
        self.go_type, self.go_list_type = go_types(record)
        self.deprecation = deprecation.of_kind(record.group, record.version, record.kind)

    def handle(self, req: Request, verb: str, namespace: str, name: str) -> Result:
        """Call the handler for the verb. Raises 404 if no verb is served on such a path, and 405 if only other methods are."""
        paths = ("get", "update", "patch", "delete") if name else ("list", "create", "deletecollection")
        if not any(v in self._verbs for v in paths) or (self.record.namespaced and not namespace) or "/watch/" in req.path:
            raise errors.generic_not_found()
        req.known = True
        if self.deprecation is not None and (verb in self._verbs or verb == "watch"):
            self.deprecation.tell(req)
        if verb == "watch" and "list" in self._verbs:
            raise errors.method_not_supported(self.group, self.resource, verb)
        handler = self._verbs.get(verb)
        if handler is None or req.method == "HEAD" or (verb == "create" and name):
            raise method_not_allowed()
        return with_body(req, handler, self, namespace, name)
