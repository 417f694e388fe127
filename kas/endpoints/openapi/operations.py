"""The operations at each path, independent of the OpenAPI version.

Built from ``ServedResource`` records, which built-in and custom resources share. Source of the behaviour: apiserver
``endpoints/installer.go`` (actions and paths) and ``endpoints/openapi`` (operation ids and tags).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kas.endpoints.openapi.schemas import META

if TYPE_CHECKING:
    from kas.types.scheme import Resource

_LIST_PARAMETERS = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch",
    "sendInitialEvents", "shardSelector", "timeoutSeconds", "watch",
)  # fmt: skip
_DELETE_PARAMETERS = (
    "dryRun", "gracePeriodSeconds", "ignoreStoreReadErrorWithClusterBreakingPotential", "orphanDependents", "propagationPolicy",
)  # fmt: skip
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_COLLECTION_PARAMETERS = tuple(sorted({*_LIST_PARAMETERS, *_DELETE_PARAMETERS} - {"allowWatchBookmarks", "watch"}))
# Resources whose storage upstream does not declare to return the deleted object (MayReturnFullObjectDeleter).
_UNDECLARED_DELETE_RESULTS = {("", "namespaces")}
_OMITTED_PARAMETERS = {("log", "sinceTime")}  # a field whose type is a struct is not a parameter (AddObjectParams)
_JSON_TYPES = {"bool": "boolean", "int32": "integer", "int64": "integer"}
_CONNECT_METHODS = {"create": "post", "delete": "delete", "get": "get", "patch": "patch", "update": "put"}
PATCH_TYPES = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml",
)  # fmt: skip
TEXTS = ("application/json", "application/yaml")
ENCODINGS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
STREAMS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")


@dataclass(frozen=True, slots=True)
class ServedSubresource:
    """A subresource. ``type`` names the definition of its body and response, None for connections and logs."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]
    type: str | None
    connect: bool = False
    path_suffix: bool = False
    parameters: tuple[tuple[str, str], ...] = ()  # its own query parameters (name, JSON type)


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource at a group version. ``type`` and ``list_type`` name its definitions."""

    group: str
    version: str
    resource: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    type: str
    list_type: str | None
    delete_returns_object: bool = False
    custom: bool = False
    subresources: tuple[ServedSubresource, ...] = ()

    @property
    def base(self) -> str:
        """``/apis/group/version``, or ``/api/version`` for the core group."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


@dataclass(slots=True)
class Operation:
    """One method at one path. ``parameters`` names common query parameters; ``own`` lists others as (name, JSON type)."""

    path: str
    method: str
    action: str
    id: str
    tag: str
    text: str
    response: str | None
    gvk: tuple[str, str, str] | None = None
    codes: tuple[int, ...] = (200,)
    body: str | None = None
    body_required: bool = True
    consumes: tuple[str, ...] = ("*/*",)
    produces: tuple[str, ...] = ENCODINGS
    parameters: tuple[str, ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    path_parameters: dict[str, str] = field(default_factory=dict)
    deprecated: bool = False


def builtin(resource: Resource) -> ServedResource:
    """Return a built-in resource as a ``ServedResource``."""
    subresources = []
    for sub in resource.subresources.values():
        options = sub.query_options
        fields = [f for f in options.fields if f.name and not f.type_meta] if options else []
        own = tuple(sorted((f.name, _JSON_TYPES.get(f.type, "string")) for f in fields if (sub.name, f.name) not in _OMITTED_PARAMETERS))
        body = None if sub.connect or sub.name == "log" or sub.type is None else sub.type.name
        suffix = bool(sub.path_suffix)
        made = ServedSubresource(sub.name, sub.group, sub.version, sub.kind, sub.verbs, body, sub.connect, suffix, own)
        subresources.append(made)
    returned = None if (resource.group, resource.resource) in _UNDECLARED_DELETE_RESULTS else resource.delete_returns
    return ServedResource(
        resource.group, resource.version, resource.resource, resource.kind, resource.namespaced, resource.verbs, resource.type.name,
        resource.list_type.name if resource.list_type else None, returned not in (None, "Status"), False,
        tuple(subresources),
    )  # fmt: skip


def valid_id(name: str, capitalize: bool) -> str:
    """Return a name as allowed in operation ids: letters, digits and underscores.

    Other characters are dropped, and the next one capitalized.
    """
    out = []
    for i, c in enumerate(name):
        if not (c.isalpha() or c == "_" or (i and c.isdecimal())):
            capitalize = True
            continue
        out.append(c.upper() if capitalize else c)
        capitalize = False
    return "".join(out)


def group_title(group: str) -> str:
    """Return the group's name within operation ids: ``Core``, ``Apps``, ``RbacAuthorization``."""
    return valid_id(group.removesuffix(".k8s.io") or "core", True)


def tag(group: str, version: str) -> str:
    """Return the tag of a group version's operations: ``apps_v1``."""
    return f"{valid_id(group.removesuffix('.k8s.io') or 'core', False)}_{valid_id(version, False)}"


class _Builder:
    """Builds the operations of one resource."""

    def __init__(self, served: ServedResource) -> None:
        self.s = served
        self.scope = "Namespaced" if served.namespaced else ""
        self.where = group_title(served.group) + valid_id(served.version, True)
        self.tag = tag(served.group, served.version)
        self.gvk = (served.group, served.version, served.kind)
        self.namespace = {"namespace": "object name and auth scope, such as for teams and projects"} if served.namespaced else {}
        self.name = {"name": f"name of the {served.kind}"}
        middle = "/namespaces/{namespace}/" if served.namespaced else "/"
        self.collection = served.base + middle + served.resource
        self.item = self.collection + "/{name}"
        self.patches = tuple(t for t in PATCH_TYPES if "strategic" not in t) if served.custom else PATCH_TYPES

    def make(self, path: str, method: str, action: str, verb: str, noun: str, text: str, response: str | None, **more: object) -> Operation:
        gvk = more.pop("gvk", self.gvk)
        return Operation(path, method, action, f"{verb}{self.where}{valid_id(noun, True)}", self.tag, text, response, gvk=gvk, **more)  # type: ignore[arg-type]

    def collections(self) -> Iterator[Operation]:
        s, kind = self.s, self.s.kind
        names = dict(self.namespace)
        if "list" in s.verbs:
            streams = ENCODINGS + STREAMS  # upstream's installer says so for every list, whether or not it can be watched
            text = f"list or watch objects of kind {kind}" if "watch" in s.verbs else f"list objects of kind {kind}"
            yield self.make(
                self.collection, "get", "list", "list", self.scope + kind, text, s.list_type, produces=streams,
                parameters=_LIST_PARAMETERS, path_parameters=names,
            )  # fmt: skip
            if s.namespaced:
                yield self.make(
                    f"{s.base}/{s.resource}", "get", "list", "list", f"{kind}ForAllNamespaces", text, s.list_type, produces=streams,
                    parameters=_LIST_PARAMETERS,
                )  # fmt: skip
        if "create" in s.verbs:
            noun = f"create {'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
            yield self.make(
                self.collection, "post", "post", "create", self.scope + kind, noun, s.type, codes=(200, 201, 202), body=s.type,
                parameters=_WRITE_PARAMETERS, path_parameters=names,
            )  # fmt: skip
        if "deletecollection" in s.verbs:
            yield self.make(
                self.collection, "delete", "deletecollection", "delete", "", f"delete collection of {kind}", META + "Status",
                body=META + "DeleteOptions", body_required=False, parameters=_COLLECTION_PARAMETERS, path_parameters=names,
            )  # fmt: skip

    def objects(self) -> Iterator[Operation]:
        s, kind = self.s, self.s.kind
        names, noun = self.namespace | self.name, self.scope + kind
        if "get" in s.verbs:
            yield self.make(self.item, "get", "get", "read", noun, f"read the specified {kind}", s.type, path_parameters=names)
        if "update" in s.verbs:
            yield self.make(
                self.item, "put", "put", "replace", noun, f"replace the specified {kind}", s.type, codes=(200, 201), body=s.type,
                parameters=_WRITE_PARAMETERS, path_parameters=names,
            )  # fmt: skip
        if "patch" in s.verbs:
            yield self.make(
                self.item, "patch", "patch", "patch", noun, f"partially update the specified {kind}", s.type, codes=(200, 201),
                body=META + "Patch", consumes=self.patches, parameters=(*_WRITE_PARAMETERS, "force"), path_parameters=names,
            )  # fmt: skip
        if "delete" in s.verbs:
            yield self.make(
                self.item, "delete", "delete", "delete", noun, f"delete {'an' if kind[0] in 'AEIOU' else 'a'} {kind}",
                s.type if s.delete_returns_object else META + "Status", codes=(200, 202), body=META + "DeleteOptions",
                body_required=False, parameters=_DELETE_PARAMETERS, path_parameters=names,
            )  # fmt: skip

    def watches(self) -> Iterator[Operation]:
        """Yield the legacy watch paths, kept for old clients."""
        s, kind = self.s, self.s.kind
        if "watch" not in s.verbs:
            return
        old = "Deprecated: use the 'watch' parameter with a list operation instead."
        event = META + "WatchEvent"

        def make(path: str, action: str, noun: str, text: str, names: dict[str, str]) -> Operation:
            return self.make(
                path.replace(s.base, s.base + "/watch", 1), "get", action, "watch", noun, f"{text} {old}", event,
                produces=ENCODINGS + STREAMS, parameters=_LIST_PARAMETERS, path_parameters=names,
            )  # fmt: skip

        many = f"watch individual changes to a list of {kind}."
        yield make(self.collection, "watchlist", f"{self.scope}{kind}List", many, dict(self.namespace))
        if s.namespaced:
            yield make(f"{s.base}/{s.resource}", "watchlist", f"{kind}ListForAllNamespaces", many, {})
        names = self.namespace | self.name
        yield make(self.item, "watch", self.scope + kind, f"watch changes to an object of kind {kind}.", names)

    def subresource(self, sub: ServedSubresource) -> Iterator[Operation]:
        noun = f"{self.scope}{self.s.kind}{sub.name[:1].upper()}{sub.name[1:]}"
        path, gvk = f"{self.item}/{sub.name}", (sub.group, sub.version, sub.kind)
        names = self.namespace | {"name": f"name of the {sub.kind}"}
        common = {"gvk": gvk, "path_parameters": names}
        if sub.connect:
            methods = [_CONNECT_METHODS[verb] for verb in sub.verbs]
            # A proxy also forwards methods without an API verb.
            for method in [*methods, "head", "options"] if sub.path_suffix else methods:
                text = f"connect {method.upper()} requests to {sub.name} of {self.s.kind}"
                id = f"connect{self.where}{method.title()}{noun}"
                connect = {"gvk": gvk, "produces": ("*/*",), "own": sub.parameters}
                yield Operation(path, method, "connect", id, self.tag, text, None, path_parameters=names, **connect)  # type: ignore[arg-type]
                if sub.path_suffix:
                    more = names | {"path": "path to the resource"}
                    yield Operation(
                        path + "/{path}", method, "connect", id + "WithPath", self.tag, text, None, path_parameters=more,
                        **connect,  # type: ignore[arg-type]
                    )  # fmt: skip
            return
        what = f"{sub.name} of the specified {self.s.kind}"
        if "get" in sub.verbs:
            plain = ("text/plain", *ENCODINGS) if sub.type is None else ENCODINGS
            yield self.make(path, "get", "get", "read", noun, f"read {what}", sub.type, produces=plain, own=sub.parameters, **common)
        if "create" in sub.verbs:
            yield self.make(
                path, "post", "post", "create", noun, f"create {what}", sub.type, codes=(200, 201, 202), body=sub.type,
                parameters=_WRITE_PARAMETERS, **common,
            )  # fmt: skip
        if "update" in sub.verbs:
            yield self.make(
                path, "put", "put", "replace", noun, f"replace {what}", sub.type, codes=(200, 201), body=sub.type,
                parameters=_WRITE_PARAMETERS, **common,
            )  # fmt: skip
        if "patch" in sub.verbs:
            yield self.make(
                path, "patch", "patch", "patch", noun, f"partially update {what}", sub.type, codes=(200, 201), body=META + "Patch",
                consumes=self.patches, parameters=(*_WRITE_PARAMETERS, "force"), **common,
            )  # fmt: skip


def operations(served: ServedResource) -> Iterator[Operation]:
    """Yield every operation of a resource and its subresources; for custom resources, as upstream's builder for definitions does."""
    for operation in _operations(served):
        if served.custom:
            if operation.path.startswith(served.base + "/watch/"):
                continue
            _as_custom(operation, served)
        yield operation


def _as_custom(operation: Operation, served: ServedResource) -> None:
    """Adapt an operation to upstream's documents of custom resources.

    They have only JSON and YAML and no streams, every operation has the definition's kind, and deletecollection takes the parameters of a
    list.
    """
    operation.produces = TEXTS
    operation.gvk = (served.group, served.version, served.kind)
    if operation.action == "get":
        operation.parameters = ("resourceVersion",)
    elif operation.action == "list":
        operation.text = f"list objects of kind {served.kind}"
    elif operation.action == "patch":
        operation.codes = (200,)
    elif operation.action == "deletecollection":
        operation.parameters, operation.body = _LIST_PARAMETERS, None
    if operation.action != "patch":
        operation.consumes = TEXTS


def _operations(served: ServedResource) -> Iterator[Operation]:
    builder = _Builder(served)
    for operation in builder.collections():
        if operation.action == "deletecollection":
            operation.id = f"delete{builder.where}Collection{builder.scope}{served.kind}"
        yield operation
    yield from builder.objects()
    for sub in served.subresources:
        yield from builder.subresource(sub)
    yield from builder.watches()


def _get(path: str, id: str, tag: str, text: str, response: str, media: tuple[str, ...] = ENCODINGS) -> Operation:
    return Operation(path, "get", "", id, tag, text, response, consumes=media, produces=media)


def root_operations() -> Iterator[Operation]:
    """Yield the operations of the discovery roots and the version."""
    yield _get("/api/", "getCoreAPIVersions", "core", "get available API versions", META + "APIVersions")
    yield _get("/apis/", "getAPIVersions", "apis", "get available API versions", META + "APIGroupList")
    info, json = "io.k8s.apimachinery.pkg.version.Info", ("application/json",)
    yield _get("/version/", "getCodeVersion", "version", "get the version of this server", info, json)


def issuer_operations() -> Iterator[Operation]:
    """Yield the operations for verifiers of service account tokens (``routes/openidmetadata.go``)."""
    for path, name, tag, text, media in (
        ("/.well-known/openid-configuration/", "Configuration", "WellKnown", "get the OpenID configuration", "application/json"),
        ("/openid/v1/jwks/", "Keyset", "openid", "get the keys that tokens are verified with", "application/jwk-set+json"),
    ):
        id, text = f"getServiceAccountIssuerOpenID{name}", f"{text} of the issuer of service account tokens"
        yield Operation(path, "get", "", id, tag, text, None, consumes=(), produces=(media,))


def group_operations(group: str) -> Iterator[Operation]:
    """Yield the operation of a group's discovery document."""
    title = group_title(group)
    if group:
        name = valid_id(group.removesuffix(".k8s.io"), False)
        yield _get(f"/apis/{group}/", f"get{title}APIGroup", name, "get information of a group", META + "APIGroup")


def version_operations(group: str, version: str) -> Iterator[Operation]:
    """Yield the operation of a group version's discovery document."""
    base = f"/apis/{group}/{version}/" if group else f"/api/{version}/"
    id = f"get{group_title(group)}{valid_id(version, True)}APIResources"
    yield _get(base, id, tag(group, version), "get available resources", META + "APIResourceList")
