"""Application of a mutating webhook's JSON patch, in the version it was shown."""

from __future__ import annotations

from kas.admission.versioned import Versioned
from kas.admission.webhook.calling import CallError
from kas.admission.webhook.hooks import Hook
from kas.admission.webhook.review import JSON_PATCH, Response
from kas.meta import errors
from kas.meta.field import go_quote
from kas.patch import jsonpatch
from kas.types.scheme import DecodeError, EncodeError


def patch(hook: Hook, objects: Versioned, found: Response) -> bool:
    """Apply the patch of an answer; return whether that changed the object.

    Raises CallError for an invalid patch, to which the failure policy applies, and a 500 for one that cannot be applied, to which it does
    not.
    """
    if not found.patch:
        return False
    try:
        operations = jsonpatch.decode(found.patch)
    except (jsonpatch.DecodeError, jsonpatch.TooManyOperationsError) as e:
        raise CallError(hook, f"received undecodable patch in webhook response: {e}", 503) from None
    if not operations:
        return False
    value = objects.plain()[0]
    if value is None:
        why = f"admission webhook {go_quote(hook.name)} attempted to modify the object, which is not supported for this operation"
        raise errors.internal(why)
    if found.patch_type != JSON_PATCH:
        raise CallError(hook, f"unsupported patch type {go_quote(found.patch_type)}", 400)
    try:
        return objects.replace(jsonpatch.apply(value, operations))
    except (jsonpatch.ApplyError, DecodeError, EncodeError) as e:
        raise errors.internal(str(e)) from None
