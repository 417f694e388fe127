"""``/scale``: a Scale view of Deployments, ReplicaSets, StatefulSets and ReplicationControllers.

Writes go through the parent's own update, so its strategy, generation and managed fields apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kas.admission import UPDATE
from kas.api import errors
from kas.api.fieldmanager import builtin, keep_timestamps, to_parent, to_scale, update
from kas.api.negotiation import APPLY_PATCH
from kas.api.scheme import SCHEME
from kas.api.selectors import format_label_selector
from kas.edge.http import Request, Response
from kas.endpoints import managedfields, patching, respond
from kas.endpoints.codec import decode_body
from kas.endpoints.options import write_options
from kas.endpoints.write import Writer, check_name, options_dict
from kas.registry.autoscaling.scale import validate_scale
from kas.registry.strategy import Context, Obj

SCALE = SCHEME.known("autoscaling", "v1", "Scale")

SUBRESOURCE = "scale"

def scale_of(parent: Obj) -> Obj:
    """The Scale of an object of a scalable kind."""
    meta, spec, status = parent["metadata"], parent.get("spec") or {}, parent.get("status") or {}
    kept = {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if k in meta}
    selector = spec.get("selector")
    if parent["kind"] == "ReplicationController":
        text = ",".join(f"{k}={v}" for k, v in sorted((selector or {}).items()))
    else:
        text = format_label_selector(selector) if selector else ""
    out: Obj = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": kept,
        "spec": {},
        "status": {"replicas": status.get("replicas", 0)},
    }
    if spec.get("replicas"):
        out["spec"]["replicas"] = spec["replicas"]
    if text and text != "<none>":
        out["status"]["selector"] = text
    return out


class Scale:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def get(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        return self._answer(req, scale_of(served.object(served.registry.get(namespace, name))), 200)

    async def update(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        respond.media(req)
        o = write_options(req.params, "UpdateOptions")
        given = decode_body(req, SCALE, strictness=o.field_validation)
        assert given is not None
        check_name(given, namespace, name)
        ctx = self.writer.context(req, namespace, o.dry_run, SUBRESOURCE)
        manager = managedfields.manager_name(o.field_manager, req)

        def change(old: Obj) -> Obj:
            return owned(old, {**given, "metadata": dict(given["metadata"])}, manager, ctx)

        uid = given["metadata"].get("uid") or ""
        return await self._write(req, served, ctx, name, change, options_dict("UpdateOptions", o), uid)

    async def patch(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        kind = patching.patch_type(req)
        respond.media(req)
        o = write_options(req.params, "PatchOptions", kind)
        ctx = self.writer.context(req, namespace, o.dry_run, SUBRESOURCE)
        view: Any = _View(served)
        change: Callable[[Obj], Obj]
        if kind == APPLY_PATCH:
            change = patching.applier(req, view, ctx, name, o)
        else:
            patched = patching.plain_patcher(req, view, kind, o)
            manager = managedfields.manager_name(o.field_manager, req)

            def patched_owned(old: Obj) -> Obj:
                scale = patched(old)
                check_name(scale, namespace, name)
                return owned(old, scale, manager, ctx)

            change = patched_owned

        return await self._write(req, served, ctx, name, change, options_dict("PatchOptions", o))

    async def _write(
        self, req: Request, served: Any, ctx: Context, name: str, change: Callable[[Obj], Obj], options: dict[str, Any], uid: str = ""
    ) -> Response:
        """Admission sees Scales, the registry their parents; managed fields are handed from one to the other."""
        admission = self.writer.admission
        attributes = self.writer.attributes(req, served, UPDATE, ctx, name, None, None, options)
        attributes.kind = SCALE.kind
        replicas = {served.api_version: "spec.replicas"}

        async def wanted(current: Obj | None) -> Obj:
            assert current is not None
            live = served.to_served(current)
            old, entries = scale_of(live), live["metadata"].get("managedFields")
            shown = to_scale(entries, replicas)
            if shown:
                old["metadata"]["managedFields"] = shown
            attributes.obj, attributes.old = change(old), scale_of(live)
            await admission.mutate(attributes)
            scale = attributes.obj
            assert scale is not None
            _check(scale, live, served, name)
            meta = dict(live["metadata"])
            meta["resourceVersion"] = scale["metadata"].get("resourceVersion") or ""
            owners = to_parent(entries, scale["metadata"].get("managedFields"), served.api_version, replicas)
            meta.pop("managedFields", None)
            if owners:
                meta["managedFields"] = owners
            return served.to_storage({**live, "metadata": meta, "spec": {**live["spec"], "replicas": _replicas(scale)}})

        async def judge(final: Obj, old: Obj | None) -> None:
            assert old is not None
            attributes.obj, attributes.old = scale_of(served.to_served(final)), scale_of(served.to_served(old))
            await admission.validate(attributes)

        # The parent's own strategy decides what the write means: no view's.
        parents = replace(ctx, subresource="")
        rec, warnings, _ = await served.registry.update(parents, name, wanted, judge, settle=keep_timestamps, uid=uid)
        for text in warnings:
            req.warn(text)
        return self._answer(req, scale_of(served.object(rec)), 200)

    def _answer(self, req: Request, scale: Obj, status: int) -> Response:
        m = respond.media(req)
        if m.convert is not None and m.convert.kind == respond.TABLE:
            return respond.transformed(req, m, _SCALE_VIEW, scale, status)
        return respond.typed(req, respond.media_without_conversion(req), SCALE.type, "autoscaling/v1", "Scale", scale, status)


def _replicas(scale: Obj) -> int:
    return (scale.get("spec") or {}).get("replicas") or 0


def _check(scale: Obj, live: Obj, served: Any, name: str) -> None:
    """``ValidateScale`` and the uid as a precondition; the registry sees to the resource version."""
    scale["metadata"].setdefault("namespace", live["metadata"].get("namespace", ""))
    found = validate_scale(scale)
    if found:
        raise errors.invalid("autoscaling", "Scale", name, found)
    uid, have = scale["metadata"].get("uid"), live["metadata"].get("uid", "")
    if uid and uid != have:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {have}"
        raise errors.conflict(served.group, f"{served.resource}/scale", name, why)


def owned(old: Obj, scale: Obj, manager: str, ctx: Context) -> Obj:
    """``scale`` with the managed fields of an update of ``old``."""
    entries = update(builtin(SCALE.group, SCALE.version, SCALE.kind), old, scale, manager, now=ctx.now, subresource=ctx.subresource)
    scale["metadata"].pop("managedFields", None)
    if entries:
        scale["metadata"]["managedFields"] = entries
    return scale


class _View:
    """Scale as patching sees a served kind."""

    def __init__(self, served: Any = None) -> None:
        self.group, self.version, self.kind, self.resource = "autoscaling", "v1", "Scale", "scales"
        self.api_version, self.type, self.kind_record = "autoscaling/v1", SCALE.type, SCALE
        self.record = served.record if served is not None else None
        self.schema: Any = None
        self.reset_sets: dict[str, dict[str, Any]] = {"": {}}

    def to_served(self, obj: Obj) -> Obj:
        return obj

    to_storage = to_served


_SCALE_VIEW = _View()
