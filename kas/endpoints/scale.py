"""``/scale``: the Scale view of Deployments, ReplicaSets, StatefulSets and ReplicationControllers.

A write is an update of the parent, so the parent's strategy, generation and managed fields apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.admission import UPDATE
from kas.endpoints import managedfields, patching, read, respond
from kas.endpoints.admission import RequestAdmission
from kas.endpoints.applying import Applied
from kas.endpoints.codec import decode_body
from kas.endpoints.options import WriteOptions, write_options
from kas.endpoints.served import Served
from kas.endpoints.write import Writer, check_name, options_dict
from kas.kinds.autoscaling.scale import validate_scale
from kas.meta import errors
from kas.meta.offload import LOOP_BUDGET, step
from kas.meta.selectors import format_label_selector
from kas.patch.fieldmanager import Schema, builtin, to_parent, to_scale, update
from kas.registry.strategy import Context, Obj
from kas.registry.versions import Shown
from kas.registry.write import Update
from kas.request.http import Request, Response
from kas.request.negotiation import APPLY_PATCH
from kas.types.scheme import builtin_kind

SCALE = builtin_kind("autoscaling", "v1", "Scale")

SUBRESOURCE = "scale"


def scale_of(parent: Obj) -> Obj:
    """Return the Scale of an object of a scalable kind."""
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


class Scaled:
    """The Scale view of a resource. ``replicas`` maps an apiVersion to the dotted path of its replicas field, or None."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.replicas: dict[str, str | None] = {served.api_version: "spec.replicas"}

    def of(self, parent: Obj) -> Obj:
        """Return the Scale of an object."""
        return scale_of(parent)

    def to_change(self, parent: Obj) -> Obj:
        """Return the Scale that a write modifies."""
        return self.of(parent)

    def to_validate(self, parent: Obj) -> Obj:
        """Return the Scale that validating admission sees and that a write returns."""
        return self.of(parent)

    def unreadable(self, e: errors.ApiError) -> errors.ApiError:
        """Return the error for a body that is not a Scale; ``e`` is the error for built-in kinds."""
        return e

    def check_apply(self, live: Obj, applied: Obj) -> None:
        """Raise if nothing can be applied to the Scale."""

    def check_applied(self, live: Obj, merged: Obj, applied: Obj) -> None:
        """Raise if an apply that changes the Scale is not possible."""

    def check(self, scale: Obj, live: Obj, name: str) -> None:
        """Run ``ValidateScale`` and check the uid as a precondition. The registry checks the resource version."""
        found = validate_scale(scale)
        if found:
            raise errors.invalid("autoscaling", "Scale", name, found)
        uid, have = scale["metadata"].get("uid"), live["metadata"].get("uid", "")
        if uid and uid != have:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {have}"
            raise errors.conflict(self.served.group, f"{self.served.resource}/scale", name, why)

    def onto(self, parent: Obj, replicas: int) -> Obj:
        """Return a copy of the object with these replicas."""
        return {**parent, "spec": {**parent["spec"], "replicas": replicas}}


class Scale:
    """Serves the ``scale`` subresource of every kind that has one."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def scaled(self, served: Served) -> Scaled:
        """Return the Scale view of the resource."""
        return Scaled(served)

    async def get(self, req: Request, served: Served, namespace: str, name: str) -> Response:
        """Serve GET of /scale: the object's Scale."""
        respond.media(req)
        read.refuse_export(req)
        return await self._answer(req, served, served.registry.get(namespace, name), self.scaled(served).of)

    async def update(self, req: Request, served: Served, namespace: str, name: str) -> Response:
        """Serve PUT of /scale: only the replicas and their managed fields reach the object."""
        respond.media(req)
        o = write_options(req.params, "UpdateOptions")
        scaled = self.scaled(served)
        try:
            given = await step(respond.long_to_read(req), decode_body, req, SCALE, field_validation=o.field_validation)
        except errors.ApiError as e:
            raise scaled.unreadable(e) from None
        assert given is not None
        check_name(given, namespace, name)
        ctx = self.writer.context(req, namespace, o.dry_run, SUBRESOURCE)
        admission = self.writer.admission_of(req, served, UPDATE, ctx, name, options_dict("UpdateOptions", o), SCALE.kind)
        manager = managedfields.manager_name(o.field_manager, req)
        return await self._write(req, served, _Replace(served, scaled, ctx, name, admission, given, manager))

    async def patch(self, req: Request, served: Served, namespace: str, name: str) -> Response:
        """Serve PATCH of /scale: patch the object's Scale; only the replicas and their managed fields reach the object."""
        kind = patching.patch_type(req)
        respond.media(req)
        if req.audit is not None:
            req.audit.patched(req.body)
        o = write_options(req.params, "PatchOptions", kind)
        ctx = self.writer.context(req, namespace, o.dry_run, SUBRESOURCE)
        admission = self.writer.admission_of(req, served, UPDATE, ctx, name, options_dict("UpdateOptions", o), SCALE.kind)
        write: _ScaleUpdate
        if kind == APPLY_PATCH:
            write = _Apply(served, self.scaled(served), ctx, name, admission, await step(respond.long_to_read(req), Applied, req, o))
        else:
            write = _Patch(req, served, self.scaled(served), ctx, name, admission, kind, o)
        return await self._write(req, served, write)

    async def _write(self, req: Request, served: Served, write: _ScaleUpdate) -> Response:
        rec = await write.run()
        for text in write.warnings:
            req.warn(text)
        return await self._answer(req, served, rec, write.scaled.to_validate)

    async def _answer(self, req: Request, served: Served, rec: Shown, shown: Callable[[Obj], Obj]) -> Response:
        m = respond.media(req)
        scale = shown(served.object(await served.converted_one(rec)))
        return respond.transformed(req, m, self.view(served), scale, 200)

    def view(self, served: Served) -> View:
        """Return how the Scale is shown in a Table."""
        return _VIEW


class _ScaleUpdate(Update):
    """A write of the parent that appears to the client and to admission as a write of its Scale.

    Managed fields are translated between the two.
    """

    def __init__(self, served: Served, scaled: Scaled, ctx: Context, name: str, admission: RequestAdmission) -> None:
        # The parent's own strategy applies, not that of a subresource.
        super().__init__(served.registry, ctx.within(""), name, served, admission)
        self.served, self.scaled, self.of_scale = served, scaled, ctx
        # A Scale is never a stored form of the object, so the strategy gets an object derived from it.
        self.native = False
        self._parent: Obj = {}

    async def to_request(self, obj: Obj) -> Obj:
        parent = await self.served.from_storage(obj)
        self._parent = parent
        scale = self.scaled.to_change(parent)
        shown = to_scale(parent["metadata"].get("managedFields"), self.scaled.replicas)
        if shown:
            scale["metadata"]["managedFields"] = shown
        return scale

    async def admit_valid(self, operation: str, obj: Obj, live: Obj | None) -> None:
        # Upstream derives both Scales again from their parents (``toScaleUpdateValidation``).
        if self.admission is not None:
            new = obj if self.own else await self.served.from_storage(obj)
            pending = self.admission.validate(operation, self.scaled.to_validate(new), self.scaled.to_validate(self._parent))
            if pending is not None:
                await pending

    def judged(self, wanted: Obj, live: Obj) -> tuple[Obj, Obj]:
        """Return the parents. Replicas at a path unknown to the schema are validated, and count as a change, before they are pruned."""
        return self._onto(self._parent, wanted), self._parent

    async def to_storage(self, obj: Obj, old: Obj | None) -> Obj:
        assert old is not None  # a scale write creates nothing
        return await self.served.to_storage(obj if self.own else self._onto(await self.served.from_storage(old), obj))

    def _onto(self, live: Obj, scale: Obj) -> Obj:
        """Return the parent modified as the Scale asks."""
        scale["metadata"].setdefault("namespace", live["metadata"].get("namespace", ""))
        self.scaled.check(scale, live, self.name)
        meta = dict(live["metadata"])
        meta["resourceVersion"] = scale["metadata"].get("resourceVersion") or ""
        had, given = meta.pop("managedFields", None), scale["metadata"].get("managedFields")
        owners = to_parent(had, given, self.served.api_version, self.scaled.replicas)
        if owners:
            meta["managedFields"] = owners
        return self.scaled.onto({**live, "metadata": meta}, _replicas(scale))


class _Replace(_ScaleUpdate):
    def __init__(
        self, served: Served, scaled: Scaled, ctx: Context, name: str, admission: RequestAdmission, given: Obj, manager: str
    ) -> None:
        super().__init__(served, scaled, ctx, name, admission)
        self.given, self.manager, self.uid = given, manager, given["metadata"].get("uid") or ""

    def mutate(self, live: Obj | None) -> Obj:
        assert live is not None
        return owned(live, {**self.given, "metadata": dict(self.given["metadata"])}, self.manager, self.of_scale)


class _Patch(_ScaleUpdate):
    def __init__(
        self, req: Request, served: Served, scaled: Scaled, ctx: Context, name: str, admission: RequestAdmission, kind: str, o: WriteOptions
    ) -> None:
        super().__init__(served, scaled, ctx, name, admission)
        self.req, self.kind, self.options = req, kind, o
        self.manager = managedfields.manager_name(o.field_manager, req)
        self.view = View(served)

    def mutate(self, live: Obj | None) -> Obj:
        assert live is not None
        patch = patching.parse(self.view, self.kind, self.req.body, self.options)
        # As in PatchUpdate: a few copy operations can turn a small object into a large one.
        patched = LOOP_BUDGET.within(patch.apply, live) if self.kind == patching.JSON_PATCH and not self.large else patch.apply(live)
        scale = patching.decode_patched(self.req, self.view, patched, self.options, patch)
        check_name(scale, self.ctx.namespace, self.name)
        return owned(live, scale, self.manager, self.of_scale)


class _Apply(_ScaleUpdate):
    def __init__(self, served: Served, scaled: Scaled, ctx: Context, name: str, admission: RequestAdmission, applied: Applied) -> None:
        ctx.apply = True
        super().__init__(served, scaled, ctx, name, admission)
        self.applied, self.view = applied, View(served)

    def mutate(self, live: Obj | None) -> Obj:
        assert live is not None
        self.scaled.check_apply(live, self.applied.value)
        return self.applied.onto(self.view, live, self.name, self.of_scale, self.scaled.check_applied)


def _replicas(scale: Obj) -> int:
    return (scale.get("spec") or {}).get("replicas") or 0


def owned(old: Obj, scale: Obj, manager: str, ctx: Context) -> Obj:
    """Return ``scale`` with the managed fields that result from updating ``old``."""
    entries = update(builtin(SCALE.group, SCALE.version, SCALE.kind), old, scale, manager, now=ctx.now, subresource=ctx.subresource)
    scale["metadata"].pop("managedFields", None)
    if entries:
        scale["metadata"]["managedFields"] = entries
    return scale


class View:
    """Scale in the form in which patching uses a served kind."""

    def __init__(self, served: Any = None) -> None:
        self.group, self.version, self.kind, self.resource = "autoscaling", "v1", "Scale", "scales"
        self.api_version, self.type, self.kind_record = "autoscaling/v1", SCALE.type, SCALE
        self.record = served.record if served is not None else None
        self.schema: Any = None
        self.answered = None
        self.reset_sets: dict[str, dict[str, Any]] = {"": {}}
        self.columns: Any = None
        self.go_type = "*autoscaling.Scale"

    def merge_schema(self) -> Schema:
        """Return the merge schema of Scale."""
        return builtin(self.group, self.version, self.kind)


_VIEW = View()
