"""Deletion of objects that cannot be read, and their report in lists (apiserver's ``corrupt_obj_deleter.go``, KEP-3926).

If ``AllowUnsafeMalformedObjectDeletion`` is enabled, an authorized user can remove an object from the storage that cannot be decrypted or
decoded. The deletion skips preconditions, finalizers, admission and everything else that depends on the object's contents.
"""

from __future__ import annotations

from kas.auth import attributes as authz
from kas.endpoints import corrupt, respond
from kas.endpoints.served import Served
from kas.meta import errors, field
from kas.meta.waiting import awaited
from kas.request.http import Request, Response
from kas.store import PAGE_BYTES, Conflict, Op, Store, TransformError

OPTION = "ignoreStoreReadErrorWithClusterBreakingPotential"
VERB = "unsafe-delete-ignore-read-errors"
MOST_TOLD = 100  # errors in one list response; upstream's limit
PAGE = 500


async def serve(req: Request, served: Served, namespace: str, name: str, authorizer: authz.Authorizer) -> Response:
    """Serve DELETE with the option: 200, 403 without the permission, 422 if the object can be read or does not exist."""
    req.annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
    await _authorize(req, served, namespace, name, authorizer)
    registry = served.registry
    key = registry.key(namespace, name)
    await registry.store.behind(registry.store.revision)
    found = _unreadable(registry.store, key)
    if found is None:
        why = "is exclusively used to delete corrupt object(s), try again by removing this option"
        raise errors.invalid(served.group, served.resource, name, [field.invalid(OPTION, True, why)])
    while found is not None:
        try:
            await registry.store.commit(Op(key, None, found.revision or None))
            break
        except (Conflict, TransformError):  # deleted, repaired or written concurrently
            again = _unreadable(registry.store, key)
            if again is not None and again.revision == found.revision:
                raise
            if again is None and registry.store.get(key) is not None:
                raise registry.conflict(name) from None
            found = again
    return respond.success(req, {"name": name, "kind": served.kind})


def _unreadable(store: Store, key: str) -> TransformError | None:
    """Return why the object cannot be read, or None if it can be read or does not exist."""
    try:
        store.get(key)
    except TransformError as e:
        return e
    return None


async def _authorize(req: Request, served: Served, namespace: str, name: str, authorizer: authz.Authorizer) -> None:
    """Raise 403 if the user lacks the permission."""
    question = authz.Attributes(
        req.user, VERB, namespace, served.group, served.version, served.resource, "", name, True, req.info.path
    )  # fmt: skip
    decision, reason, error = await awaited(authorizer.authorize(question))
    if decision == authz.ALLOW:
        return
    why = f'error while checking permission for "{VERB}", {error}' if error else f'not permitted to do "{VERB}", reason: {reason}'
    raise errors.forbidden(served.group, served.resource, name, why)


def not_of_collections() -> errors.ApiError:
    """Return the 422 for DELETE of a collection with the option."""
    why = "is not allowed with DELETECOLLECTION, try again after removing the option"
    return errors.invalid("meta.k8s.io", "DeleteOptions", "", [field.invalid(OPTION, True, why)])


def read_error(served: Served, prefix: str, first: TransformError) -> errors.ApiError:
    """Return the error of a list that met the unreadable object ``first``.

    It is a 500 StoreReadError that names every unreadable object below ``prefix``.
    """
    causes: list[dict[str, str]] = []
    met: TransformError | None = first
    while met is not None:
        if len(causes) == MOST_TOLD:
            causes.append({"reason": field.TOO_MANY, "message": "too many errors, the list is truncated"})
            break
        causes.append({"reason": "UnexpectedServerResponse", "message": corrupt(met), "field": met.key})
        met = _next(served.registry.store, prefix, met.key + "\0")
    message = f"failed to read one or more {errors.qualified(served.group, served.resource)} from the storage"
    details = {"name": "list", **({"group": served.group} if served.group else {}), "kind": served.resource, "causes": causes}
    return errors.ApiError(500, "StoreReadError", message, details)


def _next(store: Store, prefix: str, start: str) -> TransformError | None:
    more = True
    while more:
        try:
            page = store.range(prefix, start, PAGE, max_bytes=PAGE_BYTES)
        except TransformError as e:
            return e
        start, more = page.next_key, page.more
    return None
