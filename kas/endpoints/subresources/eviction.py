"""``pods/NAME/eviction``: policy/v1 Eviction, also in its v1beta1 form (``kinds/core/pod/eviction.py`` has the disruption budgets)."""

from __future__ import annotations

from typing import Any

import orjson

from kas.endpoints import respond
from kas.endpoints.optionsvalidation import validate_delete_options
from kas.endpoints.subresources import named
from kas.endpoints.write import Writer
from kas.kinds.core.pod.eviction import Evictions, TooManyBudgets
from kas.meta import errors
from kas.meta.offload import step
from kas.registry.strategy import Obj
from kas.request.http import Request, Response
from kas.types.scheme import builtin_kind

EVICTION = builtin_kind("policy", "v1", "Eviction")
EVICTION_BETA = builtin_kind("policy", "v1beta1", "Eviction")


class Eviction:
    """Serves the ``eviction`` subresource of pods."""

    def __init__(self, writer: Writer, evictions: Evictions) -> None:
        self.writer, self.evictions = writer, evictions

    async def create(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve POST of /eviction: delete the pod if its disruption budgets allow it."""
        large = respond.large(req)
        kind = await step(large, _kind, req)
        posted = await named.read(self.writer, req, served, kind, namespace, name, "eviction")
        if name != (posted.obj["metadata"].get("name") or ""):
            raise errors.bad_request("name in URL does not match name in Eviction object")
        options = await step(large, _options, posted)
        await posted.validate()
        try:
            await self.evictions.evict(posted.ctx, name, options)
        except TooManyBudgets as e:
            return respond.generic(req, respond.media_without_conversion(req), e.status(), 201)
        return named.done(req)


def _options(posted: named.Posted) -> Obj:
    """Return the DeleteOptions for the pod. Raises ApiError."""
    options = dict(posted.obj.get("deleteOptions") or {})
    asked, own = (["All"] if posted.options.dry_run else []), options.get("dryRun") or []
    if asked and own and asked != own:
        listed = [f"[{' '.join(x)}]" for x in (asked, own)]
        why = f"Non-matching dry-run options in request and content: {listed[0]} and {listed[1]}"
        raise errors.ApiError(500, "", why)
    if asked or own:
        options["dryRun"] = own or asked
    found = validate_delete_options(options)
    if found:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", found)
    return options


def _kind(req: Request) -> Any:
    """Return the Eviction kind of the version that the body declares; policy/v1 for a body that is not JSON."""
    try:
        value = orjson.loads(req.body)
    except orjson.JSONDecodeError:
        return EVICTION
    return EVICTION_BETA if isinstance(value, dict) and value.get("apiVersion") == "policy/v1beta1" else EVICTION
