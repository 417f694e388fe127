"""``/scale``: a Scale view of Deployments, ReplicaSets, StatefulSets and ReplicationControllers.

Writes go through the parent's own update, so its strategy, generation and managed fields apply.
"""

from __future__ import annotations

from typing import Any

from kas.api import errors, field
from kas.api.scheme import SCHEME
from kas.api.selectors import format_label_selector
from kas.edge.http import Request, Response
from kas.endpoints import managedfields, patching, respond
from kas.endpoints.codec import decode_body
from kas.endpoints.options import write_options
from kas.endpoints.write import Writer, check_name, options_dict
from kas.registry.strategy import Obj

SCALE = SCHEME.known("autoscaling", "v1", "Scale")


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
        o = write_options(req.params, "UpdateOptions")
        given = decode_body(req, SCALE, strictness=o.field_validation)
        assert given is not None
        check_name(given, namespace, name)
        return await self._write(req, served, namespace, name, lambda scale: given, o, "UpdateOptions")

    async def patch(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        kind = patching.patch_type(req)
        o = write_options(req.params, "PatchOptions")
        patching.check_options(kind, o)
        view = _View(served)
        if kind == patching.APPLY:
            ctx = self.writer.context(req, namespace, o.dry_run, "")
            change = patching.applier(req, view, ctx, name, o)
        else:
            change = patching.plain_patcher(req, view, kind, o)
        return await self._write(req, served, namespace, name, change, o, "PatchOptions")

    async def _write(self, req: Request, served: Any, namespace: str, name: str, change, o, options: str) -> Response:
        ctx = self.writer.context(req, namespace, o.dry_run)
        manager = managedfields.manager_name(o.field_manager, req)

        def wanted(current: Obj | None) -> Obj:
            assert current is not None
            live = served.to_served(current)
            scale = change(scale_of(live))
            replicas = (scale.get("spec") or {}).get("replicas", 0)
            if replicas < 0:
                found = field.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
                raise errors.invalid("autoscaling", "Scale", name, [found])
            given = (scale.get("metadata") or {}).get("resourceVersion")
            if given and given != live["metadata"].get("resourceVersion"):
                raise errors.conflict(served.group, served.resource, name, errors.OBJECT_MODIFIED)
            obj = {**live, "metadata": dict(live["metadata"]), "spec": {**live["spec"], "replicas": replicas}}
            ctx.subresource = "scale"
            managedfields.on_update(served, live, obj, manager, ctx)
            ctx.subresource = ""
            return served.to_storage(obj)

        rec, warnings, _ = await self.writer.write_object(req, served, ctx, name, wanted, options_dict(options, o))
        for text in warnings:
            req.warn(text)
        return self._answer(req, scale_of(served.object(rec)), 200)

    def _answer(self, req: Request, scale: Obj, status: int) -> Response:
        m = respond.media(req)
        if m.convert is not None and m.convert.kind == respond.TABLE:
            return respond.transformed(req, m, _SCALE_VIEW, scale, status)
        return respond.typed(req, respond.media_without_conversion(req), SCALE.type, "autoscaling/v1", "Scale", scale, status)


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
