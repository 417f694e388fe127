"""POST to a named subresource: decoding, managed fields and admission (``handlers/create.go`` with a name in the URL)."""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE
from kas.endpoints import managedfields, respond
from kas.endpoints.admission import RequestAdmission
from kas.endpoints.codec import decode_body
from kas.endpoints.options import WriteOptions, write_options
from kas.endpoints.write import Writer, options_dict
from kas.meta.offload import step
from kas.meta.records import NamedTuple
from kas.patch.fieldmanager import builtin, update
from kas.registry import pipeline
from kas.registry.strategy import Context, Obj
from kas.registry.write import admit
from kas.request.http import Request, Response

SYSTEM_FIELDS = ("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


class Posted(NamedTuple):
    """A decoded object after mutating admission. ``validate`` runs validating admission and must be called before anything is written."""

    obj: Obj
    ctx: Context
    options: WriteOptions
    admission: RequestAdmission

    async def validate(self) -> None:
        """Run the validating plug-ins on the object."""
        pending = self.admission.validate(CREATE, self.obj, None)
        if pending is not None:
            await pending


async def read(
    writer: Writer, req: Request, served: Any, kind: Any, namespace: str, name: str, subresource: str, *, keep_system: bool = False
) -> Posted:
    """Return the posted object of ``kind`` after mutating admission.

    ``keep_system`` keeps system fields such as uid, which serve as preconditions. Raises the errors of a create.
    """
    respond.media_without_table(req)
    o = write_options(req.params, "CreateOptions")
    large = respond.large(req)
    obj = await step(large, decode_body, req, kind, field_validation=o.field_validation)
    assert obj is not None
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    if not keep_system:
        for field in SYSTEM_FIELDS:
            meta.pop(field, None)
    pipeline.match_namespace(served.record, meta, namespace)
    ctx = writer.context(req, namespace, o.dry_run, subresource)
    await step(large, own, req, obj, kind, ctx, o)
    admission = writer.admission_of(req, served, CREATE, ctx, name or meta.get("name", ""), options_dict("CreateOptions", o), kind.kind)
    return Posted(await admit(admission, CREATE, obj, None), ctx, o, admission)


def own(req: Request, obj: Obj, kind: Any, ctx: Context, o: WriteOptions) -> None:
    """Set the managed fields of an object that is returned but never stored: all of it belongs to the client."""
    manager = managedfields.manager_name(o.field_manager, req)
    schema = builtin(kind.group, kind.version, kind.kind)
    entries = update(schema, None, obj, manager, now=ctx.now, subresource=ctx.subresource)
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def done(req: Request) -> Response:
    """Return a 201 with a Status, the answer of a subresource without an object."""
    return respond.success(req, status_code=201)
