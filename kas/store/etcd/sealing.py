"""Sealed values: etcd holds what kube-apiserver would have sealed, and the replica reveals no more of it.

etcd's value is the object in its stored form, sealed with etcd's key as authenticated data. The replica holds the engine's
draft of the object instead, sealed again by the same provider, so that a read costs as much as on LMDB. A leading byte gives
the form of etcd's value:

    FRESH   sealed as a write would seal it today
    STALE   sealed with an older key, or by another provider
    KEYED   sealed with a key that its service may change: what names that key follows, and readers compare it with their own
    RAW     etcd's own value follows: it could not be opened when it arrived, or writes today would not seal it

Each read opens and decodes a RAW value; so a value that a plug-in could not open on arrival can be read once the plug-in is
back, and until then is an error of the read, as it is for kube-apiserver. Values in plain form in etcd are in plain form in
the replica.
"""

from __future__ import annotations

import contextlib
from typing import cast

from kas.store._engine import Draft, Op, build_record
from kas.store.errors import TransformError
from kas.store.etcd.layout import OWN_PREFIX, Keys, Undecodable, Values
from kas.store.etcd.unreadable import NOBODY_OPENS
from kas.store.transform import Rotating, Transformer, Transformers

PREFIX = b"k8s:enc:"
FRESH, STALE, RAW, KEYED = b"\0", b"\1", b"\2", b"\3"
LENGTH_BYTES = 2  # of the name of a key


def placeholder() -> Draft:
    """Returns the draft for an object that cannot be opened: it contains nothing of the object."""
    return build_record(b'{"metadata":{', b"}}", {}, {}, 1)


class Given:
    """A transformer that returns a given value as sealed, and keeps the plain value."""

    plain, waits, refuses_plain = False, False, ""

    def __init__(self, sealed: bytes = b"") -> None:
        self.sealed, self.payload = sealed, b""

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """See ``Transformer``."""
        self.payload = plain
        return self.sealed

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """See ``Transformer``."""
        raise AssertionError("nothing is read with it")


class SealedOp(Op):
    """A put with etcd's sealed value and the value that the replica stores. ``opened``: the draft is that of the object."""

    opened: bool
    stored: bytes

    def seal(self, transformer: Transformer | None) -> None:
        """Uses the value in ``stored``."""
        super().seal(Given(self.stored))


def payload(op: Op) -> bytes:
    """Returns the bytes that the engine would seal for an operation."""
    kept = Given()
    Op.seal(op, kept)
    return kept.payload


class OfReplica:
    """Opens values of the replica."""

    def __init__(self, inner: Transformer, keys: Keys, values: Values, writes: bool) -> None:
        """``writes``: it is used to write the replica; operations other than ``SealedOp`` are stored in plain form."""
        self._inner, self._keys, self._values = inner, keys, values
        self.plain, self.refuses_plain = writes or inner.plain, inner.refuses_plain
        self.waits = inner.waits

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """See ``Transformer``."""
        raise AssertionError("only SealedOps are sealed in a replica")

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """See ``Transformer``; RAW values are decoded."""
        mark, rest = sealed[:1], sealed[1:]
        if mark == KEYED:
            end = LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "big")
            return self._inner.open(rest[end:], key)[0], not cast(Rotating, self._inner).writes_with(rest[LENGTH_BYTES:end])
        if mark != RAW:
            plain, stale = self._inner.open(rest, key)
            return plain, stale or mark == STALE
        name = key.decode()
        value, stale = self._inner.open(rest, self._keys.to_etcd(name))
        self._values.learn(name)
        return payload(Op(name, self._values.decode(name, value))), stale


def _mark(transformer: Transformer, value: bytes, stale: bool) -> bytes:
    """Returns the leading bytes for a value of etcd, which the transformer has opened."""
    name = cast(Rotating, transformer).key_of(value) if hasattr(transformer, "key_of") else b""
    if not name:
        return STALE if stale else FRESH
    return KEYED + len(name).to_bytes(LENGTH_BYTES, "big") + name


class Sealing:
    """Applies ``--encryption-provider-config`` to values of etcd and of the replica. Without it (None) nothing is sealed."""

    def __init__(self, transformers: Transformers | None, keys: Keys) -> None:
        self._transformers, self._keys = transformers, keys

    def waits(self, key: str) -> bool:
        """Returns whether sealing the key's value calls a slow external service."""
        found = self._transformers(key) if self._transformers is not None else None
        return found is not None and found.waits and not found.plain

    def seal(self, key: str, value: bytes) -> bytes:
        """Returns the value to write to etcd. Raises ``TransformError``."""
        transformer = self._transformers(key) if self._transformers is not None else None
        if transformer is None or transformer.plain:
            return value
        try:
            return transformer.seal(value, self._keys.to_etcd(key))
        except Exception as e:  # of any kind: it comes from a provider
            raise TransformError(key, str(e), "sealed") from e

    def opened(self, key: str, value: bytes) -> bytes:
        """Returns etcd's value in plain form. Raises ``TransformError``."""
        transformer = self._transformers(key) if self._transformers is not None and value.startswith(PREFIX) else None
        if transformer is None:
            return value
        try:
            return transformer.open(value, self._keys.to_etcd(key))[0]
        except Exception as e:  # of any kind: it comes from a provider
            raise TransformError(key, str(e)) from e

    def taken(self, key: str, value: bytes, values: Values) -> Op:
        """Returns the put of a value of etcd, in the replica's form. Raises ``Undecodable`` if it is no object."""
        if not value.startswith(PREFIX):
            return Op(key, values.decode(key, value))
        if self._transformers is None:
            raise Undecodable(NOBODY_OPENS)
        transformer = self._transformers(key)
        plain, stale = None, False
        if transformer is not None:
            try:
                plain, stale = transformer.open(value, self._keys.to_etcd(key))
            except Exception:  # of any kind, from a provider; readers will get it
                plain = None
        if plain is None:
            values.unseen(key)
        try:
            draft = placeholder() if plain is None else values.decode(key, plain)
        except Undecodable:
            raise Undecodable("what was sealed is no object") from None  # without a word about its content
        op = SealedOp(key, draft)
        op.opened, op.stored = plain is not None, RAW + value
        if plain is not None and transformer is not None and not transformer.plain:
            with contextlib.suppress(Exception):  # if the plug-in has become unavailable, RAW is correct, too
                op.stored = _mark(transformer, value, stale) + transformer.seal(payload(op), key.encode())
        return op

    def replica(self, values: Values, writes: bool = False) -> Transformers | None:
        """Returns the transformers for the replica; see ``OfReplica``."""
        known = self._transformers
        if known is None:
            return None
        keys = self._keys

        def transformer(key: str) -> Transformer | None:
            inner = known(key) if key.startswith(OWN_PREFIX) else None  # the replica's own notes are not sealed
            return None if inner is None else OfReplica(inner, keys, values, writes)

        return transformer
