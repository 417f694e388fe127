"""The verbs and documents of the API. Errors of the store are translated to API errors here, in one place."""

from __future__ import annotations

from kas.config import features
from kas.meta import errors
from kas.store import Busy, Closed, Compacted, Conflict, Full, FutureRevision, KeyTooLong, StoreError, TransformError, Unavailable, Unknown
from kas.types.scheme import EncodeError

TOO_DEEP = "exceeded max depth"
# Errors of etcd that kube-apiserver passes on unchanged, without a reason, such as "etcdserver: request is too large".
OF_ETCD = ("etcdserver: ", "rpc error: ")


def corrupt(e: TransformError) -> str:
    """Return upstream's message for an unreadable object if ``AllowUnsafeMalformedObjectDeletion`` is enabled (``NewCorruptObjError``)."""
    what = f"object not decodable revision={e.revision}" if e.revision else "data from the storage is not transformable revision=0"
    return f"StorageError: corrupt object, Code: 7, Key: {e.key}, ResourceVersion: 0, AdditionalErrorMsg: {what}: {e.why}"


def _unreadable(e: TransformError) -> errors.ApiError:
    if not e.sealing and features.DEFAULT.enabled("AllowUnsafeMalformedObjectDeletion"):
        return errors.internal(corrupt(e))
    if e.revision:
        return errors.ApiError(500, "", e.why)  # upstream passes on the decoder's message unchanged
    return errors.internal(f'unable to transform key "{e.key}": {e.why}' if e.listed else e.why)


def translate(e: Exception) -> errors.ApiError | None:
    """Return the API error for a store error, or for an object that is nested too deeply to be encoded. None means a bug."""
    if isinstance(e, EncodeError) and str(e) == TOO_DEEP:
        return errors.bad_request(TOO_DEEP)
    if not isinstance(e, StoreError):
        return None
    if isinstance(e, Busy):
        return errors.too_many_requests("Too many requests, please try again later.", 1)
    if isinstance(e, Full):
        # etcd's message, which kube-apiserver passes on unchanged: no reason, 500.
        return errors.ApiError(500, "", "etcdserver: mvcc: database space exceeded")
    if isinstance(e, Closed):
        return errors.service_unavailable("the server is shutting down")
    if isinstance(e, Compacted):
        return errors.expired(f"too old resource version: {e.requested} ({e.compacted})")
    if isinstance(e, FutureRevision):
        return errors.timeout(f"Too large resource version: {e.requested}, current: {e.current}", 1)
    if isinstance(e, KeyTooLong):
        return errors.bad_request(f"the name is too long to be stored: {e}")
    if isinstance(e, Conflict):
        return errors.ApiError(409, "Conflict", f"Operation cannot be fulfilled: {errors.OBJECT_MODIFIED}")
    if isinstance(e, Unknown):
        return errors.timeout(str(e), 1)
    if isinstance(e, Unavailable):
        return errors.service_unavailable(str(e), 1)
    if isinstance(e, TransformError):
        return _unreadable(e)
    text = str(e)
    if text.startswith(OF_ETCD):
        return errors.ApiError(500, "", text)
    return errors.internal(text)
