"""The write pipeline between admission and the store: upstream's ``rest.BeforeCreate`` and ``rest.BeforeUpdate``.

Pure functions on plain dicts, without I/O. ``decode_input`` turns a request body into a defaulted object of the storage
version; ``build_create`` and ``build_update`` run the kind's strategy on it. They return the object to store and the warnings
for the client, or raise ``ApiError`` (422 Invalid, 400 for a namespace mismatch).
"""

from __future__ import annotations

from collections.abc import Callable

from kas._codecs import TypeDesc
from kas.meta import errors
from kas.meta.objectmeta import validate_object_meta, validate_replaced_object_meta
from kas.meta.random import new_uid
from kas.registry.strategy import Context, Obj, strategy_of
from kas.types.conversion import convert
from kas.types.defaults import apply_defaults
from kas.types.scheme import Resource, decode, encode_json

_SYSTEM_FIELDS = frozenset(("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"))


def to_storage(resource: Resource, obj: Obj) -> Obj:
    """Returns ``obj`` converted to its storage version, with that version's defaults; ``obj`` itself if it is in that version."""
    storage, own = resource.storage_gvk, (resource.group, resource.version, resource.kind)
    if storage is None or storage == own:
        return obj
    converted = convert(obj, own, storage)
    if resource.storage_kind is not None:
        apply_defaults(resource.storage_kind, converted)
    return converted


def from_storage(resource: Resource, obj: Obj) -> Obj:
    """Returns a stored object in the resource's own version."""
    storage, own = resource.storage_gvk, (resource.group, resource.version, resource.kind)
    return obj if storage is None or storage == own else convert(obj, storage, own)


def decode_input(resource: Resource, obj: Obj) -> tuple[Obj, list[str]]:
    """Decodes (type check, canonical scalars), defaults and converts; the second value is the unknown fields. Raises
    DecodeError."""
    typed, unknown = decode(resource.type, obj)
    apply_defaults(resource, typed)
    return to_storage(resource, typed), unknown


def match_namespace(resource: Resource, meta: Obj, namespace: str) -> None:
    """``rest.EnsureObjectNamespaceMatchesRequestNamespace``; removes the namespace of a cluster-scoped object."""
    have = meta.get("namespace") or ""
    if not resource.namespaced:
        meta.pop("namespace", None)
    elif have == "":
        if namespace:
            meta["namespace"] = namespace
    elif have != namespace:
        if namespace:
            raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
        meta.pop("namespace", None)


def wipe_system_fields(meta: Obj) -> None:
    """Removes the metadata that only the server sets (``rest.WipeObjectMetaSystemFields``), in place."""
    if not _SYSTEM_FIELDS.isdisjoint(meta):
        for name in _SYSTEM_FIELDS:
            meta.pop(name, None)


def _kind_group(resource: Resource, obj: Obj) -> str:
    """Returns the group of the internal kind that an Invalid error names: that of the storage version (Events are core's in
    both groups); for a custom resource, the group in the object's apiVersion."""
    if resource.type.custom and isinstance(said := obj.get("apiVersion"), str):
        return said.rpartition("/")[0]
    return resource.storage_gvk[0] if resource.storage_gvk else resource.group


def build_create(
    resource: Resource,
    obj: Obj,
    ctx: Context,
    begin: Callable[[Obj], None] | None = None,
) -> tuple[Obj, list[str]]:
    """Returns ``obj`` ready to be stored, and the warnings.

    ``obj`` is decoded, defaulted and admitted; it is changed in place. ``begin`` is the kind's BeginCreate hook (IP and port
    allocation), called once identity and name are known. Raises ``ApiError`` 400 or 422.
    """
    strategy = strategy_of(resource)
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    wipe_system_fields(meta)
    match_namespace(resource, meta, ctx.namespace)
    meta["uid"] = ctx.uid or new_uid()
    meta["creationTimestamp"] = ctx.now
    if meta.get("generateName") and not meta.get("name"):
        meta["name"] = strategy.generate_name(meta["generateName"])
    if begin is not None:
        begin(obj)
    strategy.gated.drop(obj, None)
    strategy.prepare_for_create(ctx, obj)
    found = strategy.validate(ctx, obj)
    if found:
        raise errors.invalid(_kind_group(resource, obj), obj.get("kind") or resource.kind, meta.get("name") or "", found)
    if not strategy.validates_metadata:
        found = validate_object_meta(meta, resource.namespaced)
        if found:
            raise errors.invalid(_kind_group(resource, obj), resource.kind, meta.get("name") or "", found)
    warnings = strategy.warnings_on_create(ctx, obj)
    if ctx.warnings:
        warnings = ctx.warnings + warnings
    strategy.canonicalize(obj)
    return obj, warnings


def build_update(
    resource: Resource,
    obj: Obj,
    old: Obj,
    ctx: Context,
    subresource: str = "",
    begin: Callable[[Obj, Obj], None] | None = None,
) -> tuple[Obj, list[str]]:
    """Returns ``obj`` as it replaces ``old``, and the warnings.

    Both are decoded and defaulted objects of the storage version; ``obj`` is changed in place, ``old`` is not. ``begin`` is
    the kind's BeginUpdate hook (IPs and ports carried over and allocated). A write to a subresource runs the strategy's
    ``prepare_for_<subresource>_update`` and ``validate_<subresource>_update``. Raises ``ApiError`` 400 or 422.
    """
    strategy = strategy_of(resource)
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    old_meta = old["metadata"]
    if begin is not None:
        begin(obj, old)
    match_namespace(resource, meta, ctx.namespace)
    if "generation" in old_meta:
        meta["generation"] = old_meta["generation"]
    else:
        meta.pop("generation", None)
    if subresource:
        prepare, validate = getattr(strategy, f"prepare_for_{subresource}_update"), getattr(strategy, f"validate_{subresource}_update")
    else:
        prepare, validate = strategy.prepare_for_update, strategy.validate_update
    strategy.gated.drop(obj, old, subresource == "status")
    prepare(ctx, obj, old)
    meta = obj["metadata"]
    if not meta.get("uid") and old_meta.get("uid"):
        meta["uid"] = old_meta["uid"]
    if old_meta.get("creationTimestamp"):
        meta["creationTimestamp"] = old_meta["creationTimestamp"]
    if old_meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = old_meta["deletionTimestamp"]
    if meta.get("deletionGracePeriodSeconds") is None and old_meta.get("deletionGracePeriodSeconds") is not None:
        meta["deletionGracePeriodSeconds"] = old_meta["deletionGracePeriodSeconds"]
    # No rule for updates covers finalizers and the prefix of generated names.
    own = not subresource and strategy.validates_metadata and "finalizers" not in meta and "generateName" not in meta
    wrong = [] if own else validate_replaced_object_meta(meta, old_meta, resource.namespaced)
    ctx.metadata_passed = not own and not wrong
    found = validate(ctx, obj, old)
    if found and own:
        wrong = validate_replaced_object_meta(meta, old_meta, resource.namespaced)
    found = wrong + found
    if found:
        raise errors.invalid(_kind_group(resource, obj), obj.get("kind") or resource.kind, meta.get("name") or "", found)
    warnings: list[str] = []
    if not subresource:
        warnings = strategy.warnings_on_update(ctx, obj, old)
    elif subresource == "status":
        warnings = strategy.warnings_on_status_update(ctx, obj, old)
    if ctx.warnings:
        warnings = ctx.warnings + warnings
    strategy.canonicalize(obj)
    return obj, warnings


def encode(resource: Resource, obj: Obj) -> bytes:
    """Returns the stored form as JSON in Go's field order."""
    found: bytes = encode_json(stored_type(resource), obj)
    return found


def stored_type(resource: Resource) -> TypeDesc:
    """Returns the descriptor of the version that the resource is stored as."""
    return resource.storage_kind.type if resource.storage_kind is not None else resource.type
