"""Webhooks and policies from files in a directory, which the API neither shows nor changes (``staticManifestsDir``).

They are in effect from the first request on, run before those of the API, and are the only ones that apply to the configurations of
admission itself. The directory is read again when it changes; invalid content changes nothing and is logged. Upstream:
``apiserver/pkg/admission/plugin/manifest`` with its loaders and sources, behind the gate ManifestBasedAdmissionControlConfig.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from kas.admission.configuration import DIRECTORY as FIELD
from kas.admission.configuration import InitializationError
from kas.config import features
from kas.kinds.admissionregistration.staticnames import SUFFIX, ConfigurationStrategy
from kas.meta import goerrors
from kas.meta.field import forbidden, go_quote, invalid
from kas.meta.records import NamedTuple
from kas.observe.metrics import Registry as Metrics
from kas.observe.reloads import Reloads
from kas.registry.registries import Registries
from kas.types.configfile import RAW, ConfigurationError, Document, KindError, Named, Struct, check, named, parse, read_file
from kas.types.configfile import decode as decode_struct
from kas.types.defaults import apply_defaults
from kas.types.scheme import DecodeError, Kind, decode, find_builtin_kind, strict_fields, write_json

log = logging.getLogger("kas.admission")

Obj = dict[str, Any]
Strategies = Mapping[str, ConfigurationStrategy]  # by kind
GROUP, VERSION = "admissionregistration.k8s.io", "v1"
_ENDINGS = (".json", ".yaml", ".yml")
_LIST = Struct("List", {"metadata": RAW, "items": [Named("RawExtension", RAW)]})
_NOT_HERE = "is not supported for static manifests"


def directory_of(fields: Mapping[str, Any]) -> str:
    """Return the directory that a plug-in's configuration names. Raises ConfigurationError."""
    path: str = fields[FIELD]
    if not features.DEFAULT.enabled("ManifestBasedAdmissionControlConfig"):
        check([forbidden(FIELD, f"{FIELD} requires the ManifestBasedAdmissionControlConfig feature gate to be enabled")])
    if not os.path.isabs(path):
        check([invalid(FIELD, path, "must be an absolute file path")])
    try:
        mode = os.stat(path).st_mode
    except OSError as e:
        check([invalid(FIELD, path, f"unable to read: {goerrors.failed('stat', path, e)}")])
    else:
        if not stat.S_ISDIR(mode):
            check([invalid(FIELD, path, "must be a directory")])
    return path


def strategies_of(registries: Registries, resources: Sequence[str]) -> Strategies:
    """Return the strategies that validate objects of these resources, by kind."""
    out = {}
    for resource in resources:
        registry = registries.of(GROUP, resource)
        assert isinstance(registry.strategy, ConfigurationStrategy)
        out[registry.resource.kind] = registry.strategy
    return out


class Loaded(NamedTuple):
    """The content of the files: the objects of each kind sorted by name, and all bytes."""

    objects: Mapping[str, Sequence[Obj]]
    data: bytes


def load(directory: str, strategies: Strategies) -> Loaded:
    """Load the files of ``directory``; their objects must be of the kinds in ``strategies``. Raises ConfigurationError."""
    found: dict[str, dict[str, tuple[str, Obj]]] = {kind: {} for kind in strategies}
    data = b""
    for path, text in _files(directory):
        data += text + b"\0"
        for document in _documents(text):
            try:
                for obj in _objects(parse(document), strategies):
                    _take(found[obj["kind"]], obj, path)
            except ConfigurationError as e:
                raise ConfigurationError(f"error loading {path}: {e}") from None
    objects = {kind: [obj for _, (_, obj) in sorted(of.items())] for kind, of in found.items()}
    for binding in (obj for kind in strategies if kind.endswith("Binding") for obj in objects[kind]):
        name, policy = binding["metadata"]["name"], binding["spec"]["policyName"]
        if policy not in found[binding["kind"].removesuffix("Binding")]:
            why = f"references policy {go_quote(policy)} which does not exist in the manifest directory"
            raise ConfigurationError(f"binding {go_quote(name)} {why}")
    return Loaded(objects, data)


def _names(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if not e.is_dir(follow_symlinks=False) and e.name.lower().endswith(_ENDINGS))
    except OSError as e:
        why = goerrors.unreadable(directory, e)
        raise ConfigurationError(f"failed to read manifest directory {go_quote(directory)}: {why}") from None


def _files(directory: str) -> Iterator[tuple[str, bytes]]:
    for name in _names(directory):
        path = os.path.join(directory, name)
        try:
            text = read_file(path)
        except ConfigurationError as e:
            raise ConfigurationError(f"failed to read file {go_quote(path)}: {e}") from None
        if text:
            yield path, text


def _documents(text: bytes) -> Iterator[bytes]:
    """Yield the non-empty documents of a file, separated by lines of three hyphens, optionally followed by a comment."""
    document = b""
    for line in text.splitlines(keepends=True):
        if line.startswith(b"---") and line[3:].strip()[:1] in (b"", b"#"):
            if document.strip():
                yield document
            document = b""
        else:
            document += line
    if document.strip():
        yield document


def _objects(document: Document, strategies: Strategies, in_list: str = "") -> Iterator[Obj]:
    """Yield the defaulted, validated objects of a document or of the list in it. Raises ConfigurationError."""
    api_version, kind = named(document)
    if (api_version, kind) == ("v1", "List") and not in_list:
        fields = {name: value for name, value in document.value.items() if name not in ("apiVersion", "kind")}
        for item in decode_struct(fields, _LIST, package="runtime", repeated=document.repeated).get("items") or ():
            yield from _objects(Document(item, document.repeated), strategies, " in List")
        return
    group, _, version = api_version.rpartition("/")
    known = find_builtin_kind(group, version, kind) if group == GROUP else None
    if known is None:
        raise KindError(f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)}")
    one = kind.removesuffix("List")
    if one not in strategies or version != VERSION:
        raise ConfigurationError(f"unsupported resource type {api_version}, Kind={kind}{in_list}")
    obj = _typed(known, document)
    for item in obj.get("items") or () if one != kind else (obj,):
        item |= {"apiVersion": api_version, "kind": one}
        _validate(item, strategies[one])
        yield item


def _typed(kind: Kind, document: Document) -> Obj:
    try:
        obj, unknown = decode(kind.type, document.value)
    except DecodeError as e:
        raise ConfigurationError(str(e)) from None
    if unknown:
        unknown = strict_fields(write_json(document.value), kind.type)
    if unknown or document.repeated:
        raise ConfigurationError("strict decoding error: " + ", ".join([*document.repeated, *unknown]))
    apply_defaults(kind, obj)
    return obj


def _validate(obj: Obj, strategy: ConfigurationStrategy) -> None:
    name = obj.setdefault("metadata", {}).get("name") or ""
    try:
        check(strategy.rules(obj))
    except ConfigurationError as e:
        raise ConfigurationError(f"{obj['kind']} {go_quote(name)}: {e}") from None


def _take(found: dict[str, tuple[str, Obj]], obj: Obj, path: str) -> None:
    """Add the object to those of its kind. Raises ConfigurationError if the rules for manifest files forbid it."""
    name, where = obj["metadata"].get("name") or "", f"in file {go_quote(path)}"
    if not name.endswith(SUFFIX):
        raise ConfigurationError(f"{go_quote(name)} {where} must have a name ending with {go_quote(SUFFIX)}")
    if name in found:
        before = go_quote(found[name][0])
        raise ConfigurationError(f"duplicate name {go_quote(name)} found {where} (previously seen in {before})")
    for hook in obj.get("webhooks") or ():
        if hook["clientConfig"].get("service") is not None:
            about = f"webhook {go_quote(hook['name'])} in {go_quote(name)} (file {go_quote(path)})"
            raise ConfigurationError(f"{about}: clientConfig.service {_NOT_HERE}; use clientConfig.url instead")
    spec = obj.get("spec") or {}
    if spec.get("paramKind") is not None:
        raise ConfigurationError(f"{obj['kind']} {go_quote(name)}: spec.paramKind {_NOT_HERE}")
    if obj["kind"].endswith("Binding"):
        policy = spec["policyName"]
        if not policy.endswith(SUFFIX):
            raise ConfigurationError(f"binding {go_quote(name)}: spec.policyName {go_quote(policy)} must end with {go_quote(SUFFIX)}")
        if spec.get("paramRef") is not None:
            raise ConfigurationError(f"binding {go_quote(name)}: spec.paramRef {_NOT_HERE}")
    found[name] = path, obj


# Compiles the objects of each kind, in any thread; the returned function puts them into effect, on the event loop.
Use = Callable[[Mapping[str, Sequence[Obj]]], Callable[[], None]]


class Manifests:
    """The objects in ``directory`` for a plug-in, as last valid.

    ``use`` is called with the objects of each kind, at once and after each change. ``identity`` is the server's name in the metrics of
    reloads, "" if this process does not report them. Raises ConfigurationError if the initial content is invalid.
    """

    every_s = 1.0  # interval of ``look``

    def __init__(
        self, plugin: str, directory: str, strategies: Strategies, use: Use, metrics: Metrics, identity: str
    ) -> None:  # fmt: skip
        self.plugin, self._directory, self._strategies, self._use = plugin, directory, strategies, use
        self._reloads = Reloads(metrics, "manifest_admission", identity, plugin)
        self._wrong = ""
        self._stamp = self._now()
        loaded = load(directory, strategies)
        self._data = loaded.data
        self._count(loaded, use(loaded.objects))

    def look(self) -> Awaitable[None] | None:
        """Reload the directory if it changed. Valid content takes effect; invalid content changes nothing and is logged."""
        return None if self._now() == self._stamp else self._again()

    async def _again(self) -> None:
        stamp = self._now()
        try:
            loaded = await asyncio.to_thread(load, self._directory, self._strategies)
        except ConfigurationError as e:
            if self._wrong != str(e):
                self._wrong = str(e)
                log.error("reloading admission manifest config of %s: %s", self.plugin, e)
                self._reloads.done(False, time.time())
            return
        finally:
            self._stamp = stamp
        self._wrong = ""
        if loaded.data != self._data:
            self._data = loaded.data
            put = await asyncio.to_thread(self._use, loaded.objects)
            log.warning("reloaded admission manifest config of %s", self.plugin)
            self._count(loaded, put)

    def _count(self, loaded: Loaded, put: Callable[[], None]) -> None:
        put()
        self._reloads.done(True, time.time())
        self._reloads.applied(loaded.data)

    def _now(self) -> tuple[Any, ...]:
        """Return a value that changes with any of the files, and stays the same while the directory is missing."""
        out = []
        try:
            for name in _names(self._directory):
                s = os.stat(os.path.join(self._directory, name))
                out.append((name, s.st_mtime_ns, s.st_size, s.st_ino))
        except (OSError, ConfigurationError) as e:
            return (str(e),)
        return tuple(out)


def manifests_of(
    plugin: str, fields: Mapping[str, Any], what: str, resources: Sequence[str], use: Use,
    registries: Registries, metrics: Metrics, identity: str,
) -> Manifests:  # fmt: skip
    """Return the manifests of a plug-in whose configuration names a directory with objects of these resources; ``what`` names them in
    errors. Raises ConfigurationError."""
    directory = directory_of(fields)
    try:
        return Manifests(plugin, directory, strategies_of(registries, resources), use, metrics, identity)
    except ConfigurationError as e:
        why = f"failed to load static {what} manifests from {go_quote(directory)}: {e}"
        raise InitializationError(why) from None
