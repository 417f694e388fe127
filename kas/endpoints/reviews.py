"""The review kinds, which are created and answered but never stored (authentication.k8s.io, authorization.k8s.io)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from kas.admission import CREATE
from kas.endpoints import respond
from kas.endpoints.codec import decode_body
from kas.endpoints.options import write_options
from kas.endpoints.rest import Virtual
from kas.endpoints.subresources.named import own
from kas.endpoints.write import Writer, options_dict
from kas.kinds.authentication import tokenreview as authn
from kas.kinds.authorization import accessreview as authz
from kas.meta.offload import POOL
from kas.meta.waiting import awaited, eager
from kas.registry import pipeline
from kas.request.http import Request, Response

# (context, object, whether the object is large)
Answer = Callable[[Any, dict[str, Any], bool], dict[str, Any] | Awaitable[dict[str, Any]]]


def review(record, writer: Writer, answer: Answer) -> Virtual:
    """Return a create-only resource that answers with the object and its status."""
    kind = record.kind_record

    @eager
    async def create(req: Request, served: Virtual, namespace: str, name: str) -> Response:
        respond.media_without_table(req)
        o = write_options(req.params, "CreateOptions")
        ctx, large = writer.context(req, namespace, o.dry_run), respond.large(req)

        def read() -> dict[str, Any]:
            obj = decode_body(req, kind, field_validation=o.field_validation)
            assert obj is not None
            meta = obj["metadata"] = obj.get("metadata") or {}
            pipeline.wipe_system_fields(meta)
            pipeline.match_namespace(record, meta, namespace)
            # Visible only if the answer is the posted object with a status; other reviews return a new object.
            own(req, obj, kind, ctx, o)
            return obj

        obj = await awaited(POOL.run(read) if large else read())
        admission = writer.admission_of(req, served, CREATE, ctx, "", options_dict("CreateOptions", o))
        await awaited(admission.admit(CREATE, obj, None))
        await awaited(admission.validate(CREATE, admission.obj, None))
        result = await awaited(answer(ctx, admission.obj, large))
        for key, value in (ctx.annotations or {}).items():
            req.annotate(key, value)
        for text in ctx.warnings:
            req.warn(text)
        encoded = functools.partial(respond.virtual, req, kind, result, 201)
        return await awaited(POOL.run(encoded) if large else encoded())

    return Virtual(record, create=create)


def review_answers(authorizer, resolver, token_review: Callable, audiences: list[str]) -> dict[tuple[str, str], Answer]:
    """Return (group, resource) -> function that answers the review."""
    a, b = "authorization.k8s.io", "authentication.k8s.io"
    return {
        (a, "subjectaccessreviews"): lambda ctx, obj, large: authz.subject_access_review(ctx, obj, authorizer, large),
        (a, "localsubjectaccessreviews"): lambda ctx, obj, large: authz.local_subject_access_review(ctx, obj, authorizer, large),
        (a, "selfsubjectaccessreviews"): lambda ctx, obj, large: authz.self_subject_access_review(ctx, obj, authorizer, large),
        (a, "selfsubjectrulesreviews"): lambda ctx, obj, large: authz.self_subject_rules_review(ctx, obj, resolver),
        (b, "tokenreviews"): lambda ctx, obj, large: authn.token_review(ctx, obj, token_review, audiences),
        (b, "selfsubjectreviews"): lambda ctx, obj, large: authn.self_subject_review(ctx, obj),
    }
