"""Sealed values: what stands in etcd is what kube-apiserver would have sealed, and the replica shows no more of it.

etcd's value is the object in its stored form, sealed with etcd's key as authenticated data. The replica keeps the engine's draft of an
object instead, sealed anew by the same provider, so that a read costs what it costs on LMDB. A byte in front says how etcd has it:

    FRESH   sealed as a write would seal it today
    STALE   with an older key, or another provider
    RAW     etcd's own value follows: it could not be opened when it came, or what writes today would not seal it

A RAW value is opened, and decoded, by each read; so what a plug-in could not open when it came is read once the plug-in is back, and till
then is an error of the read, as it is for kube-apiserver. What etcd holds in the clear stands in the clear in the replica.
"""

from __future__ import annotations

import contextlib

from kas.store._engine import Draft, Op, build_record
from kas.store.errors import TransformError
from kas.store.etcd.layout import OWN_PREFIX, Keys, Undecodable, Values
from kas.store.etcd.unreadable import NOBODY_OPENS
from kas.store.transform import Transformer, Transformers

PREFIX = b"k8s:enc:"
FRESH, STALE, RAW = b"\0", b"\1", b"\2"


def placeholder() -> Draft:
    """Of an object that cannot be opened: nothing of it is stored."""
    return build_record(b'{"metadata":{', b"}}", {}, {}, 1)


class Given:
    """Seals to what it was given, and keeps what it was to seal."""

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
    """A put of what etcd holds sealed, and of what the replica stores of it. ``opened``: the draft is the object's."""

    opened: bool
    stored: bytes

    def seal(self, transformer: Transformer | None) -> None:
        """As ``stored`` says."""
        super().seal(Given(self.stored))


def payload(op: Op) -> bytes:
    """What the engine seals of an operation."""
    kept = Given()
    Op.seal(op, kept)
    return kept.payload


class OfReplica:
    """Opens a value of the replica."""

    def __init__(self, inner: Transformer, keys: Keys, values: Values, writes: bool) -> None:
        """``writes``: the replica is written through it, and what is not a ``SealedOp`` is stored as it is."""
        self._inner, self._keys, self._values = inner, keys, values
        self.plain, self.refuses_plain = writes or inner.plain, inner.refuses_plain
        self.waits = inner.waits

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """See ``Transformer``."""
        raise AssertionError("only SealedOps are sealed in a replica")

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """See ``Transformer``; RAW values are decoded."""
        mark, rest = sealed[:1], sealed[1:]
        if mark != RAW:
            plain, stale = self._inner.open(rest, key)
            return plain, stale or mark == STALE
        name = key.decode()
        value, stale = self._inner.open(rest, self._keys.to_etcd(name))
        self._values.learn(name)
        return payload(Op(name, self._values.decode(name, value))), stale


class Sealing:
    """What ``--encryption-provider-config`` says, for etcd's values and for those of the replica. Without it (None) nothing is sealed."""

    def __init__(self, transformers: Transformers | None, keys: Keys) -> None:
        self._transformers, self._keys = transformers, keys

    def waits(self, key: str) -> bool:
        """Whether somebody is asked to seal it."""
        found = self._transformers(key) if self._transformers is not None else None
        return found is not None and found.waits and not found.plain

    def seal(self, key: str, value: bytes) -> bytes:
        """What is written to etcd. Raises ``TransformError``."""
        transformer = self._transformers(key) if self._transformers is not None else None
        if transformer is None or transformer.plain:
            return value
        try:
            return transformer.seal(value, self._keys.to_etcd(key))
        except Exception as e:  # a provider's own, whatever it is
            raise TransformError(key, str(e), "sealed") from e

    def opened(self, key: str, value: bytes) -> bytes:
        """etcd's value in the clear. Raises ``TransformError``."""
        transformer = self._transformers(key) if self._transformers is not None and value.startswith(PREFIX) else None
        if transformer is None:
            return value
        try:
            return transformer.open(value, self._keys.to_etcd(key))[0]
        except Exception as e:  # a provider's own, whatever it is
            raise TransformError(key, str(e)) from e

    def taken(self, key: str, value: bytes, values: Values) -> Op:
        """The put of a value of etcd's, as the replica keeps it. Raises ``Undecodable`` for one that is no object."""
        if not value.startswith(PREFIX):
            return Op(key, values.decode(key, value))
        if self._transformers is None:
            raise Undecodable(NOBODY_OPENS)
        transformer = self._transformers(key)
        plain, stale = None, False
        if transformer is not None:
            try:
                plain, stale = transformer.open(value, self._keys.to_etcd(key))
            except Exception:  # a provider's own, whatever it is: told to those who read it
                plain = None
        if plain is None:
            values.unseen(key)
        try:
            draft = placeholder() if plain is None else values.decode(key, plain)
        except Undecodable:
            raise Undecodable("what was sealed is no object") from None  # no word of what it is
        op = SealedOp(key, draft)
        op.opened, op.stored = plain is not None, RAW + value
        if plain is not None and transformer is not None and not transformer.plain:
            with contextlib.suppress(Exception):  # the plug-in has gone since: RAW is right, too
                op.stored = (STALE if stale else FRESH) + transformer.seal(payload(op), key.encode())
        return op

    def replica(self, values: Values, writes: bool = False) -> Transformers | None:
        """What the replica is opened with; see ``OfReplica``."""
        known = self._transformers
        if known is None:
            return None
        keys = self._keys

        def transformer(key: str) -> Transformer | None:
            inner = known(key) if key.startswith(OWN_PREFIX) else None  # what the replica notes for itself is nobody's
            return None if inner is None else OfReplica(inner, keys, values, writes)

        return transformer
