"""The review kinds: created, answered, never stored (authentication.k8s.io, authorization.k8s.io)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.api.scheme import SCHEME
from kas.edge.http import Request, Response
from kas.endpoints import respond
from kas.endpoints.codec import decode_body
from kas.endpoints.options import write_options
from kas.endpoints.rest import Virtual
from kas.endpoints.subresources.named import own
from kas.endpoints.write import Writer
from kas.registry import pipeline
from kas.registry.authentication import reviews as authn
from kas.registry.authorization import reviews as authz

Answer = Callable[[Any, dict[str, Any]], dict[str, Any]]


def review(record, writer: Writer, answer: Answer) -> Virtual:
    """A create-only resource whose answer is the object with its status filled in."""
    kind = SCHEME.known(record.group, record.version, record.kind)

    def create(req: Request, served: Virtual, namespace: str, name: str) -> Response:
        respond.media(req)
        o = write_options(req.params, "CreateOptions")
        obj = decode_body(req, kind, strictness=o.field_validation)
        assert obj is not None
        meta = obj["metadata"] = obj.get("metadata") or {}
        pipeline.wipe_system_fields(meta)
        pipeline.match_namespace(record, meta, namespace)
        ctx = writer.context(req, namespace, o.dry_run)
        # Seen only where the answer is the question itself with a status; the others answer a new object.
        own(req, obj, kind, ctx, o)
        result = answer(ctx, obj)
        return respond.typed(req, respond.media_without_conversion(req), record.type, record.api_version, record.kind, result, 201)

    return Virtual(record, create=create)


def review_answers(authorizer, resolver, token_review: Callable, audiences: list[str]) -> dict[tuple[str, str], Answer]:
    """(group, resource) -> how to answer."""
    a, b = "authorization.k8s.io", "authentication.k8s.io"
    return {
        (a, "subjectaccessreviews"): lambda ctx, obj: authz.subject_access_review(ctx, obj, authorizer),
        (a, "localsubjectaccessreviews"): lambda ctx, obj: authz.local_subject_access_review(ctx, obj, authorizer),
        (a, "selfsubjectaccessreviews"): lambda ctx, obj: authz.self_subject_access_review(ctx, obj, authorizer),
        (a, "selfsubjectrulesreviews"): lambda ctx, obj: authz.self_subject_rules_review(ctx, obj, resolver),
        (b, "tokenreviews"): lambda ctx, obj: authn.token_review(ctx, obj, token_review, audiences),
        (b, "selfsubjectreviews"): lambda ctx, obj: authn.self_subject_review(ctx, obj),
    }
