"""Mutual authentication between this server and a backend.

Upstream: kube-aggregator's ``remote.BuildTransportConfig`` and client-go's ``transport.SetAuthProxyHeaders``.
"""

from __future__ import annotations

import base64
import logging
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Container
from time import monotonic

from kas.auth.user import MASTERS, UserInfo
from kas.client.http import CONTEXT_BYTES
from kas.meta.files import read_configuration
from kas.meta.offload import POOL
from kas.meta.tls import AuthoritiesError, context_bytes, trust_as_go, trust_authorities
from kas.observe import caches
from kas.request.http import Headers

log = logging.getLogger("kas.aggregator")

LOOK_AGAIN_S = 1.0
MOST_CONTEXTS = 64
PROBER = UserInfo("system:kube-aggregator", (MASTERS,))  # this server's identity in its own requests
_LEGAL = frozenset(b"!#$&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~")


class TransportError(Exception):
    """The APIService's TLS settings cannot be used; the text is upstream's."""


class ProxyCertificate:
    """The client certificate for backends, from two PEM files ("" for none). Changed files are used from the next check on, at most
    ``LOOK_AGAIN_S`` later; a pair that cannot be loaded leaves the previous one in use.

    Raises OSError (``ssl.SSLError`` is one) if the pair cannot be loaded initially.
    """

    def __init__(self, certificate: str, key: str, clock: Callable[[], float] = monotonic) -> None:
        self._files, self._clock = (certificate, key), clock
        self._given = bool(certificate and key)
        self._seen: tuple[tuple[int, int, int], ...] = ()
        self._next_look = 0.0
        self.generation, self._wrong = 0, ""
        if self._given:
            self._seen, self._next_look = self._stat(), clock() + LOOK_AGAIN_S
            self.into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def into(self, context: ssl.SSLContext) -> None:
        """Load the certificate from disk into ``context``. Raises OSError."""
        if self._given:
            for file in self._files:
                read_configuration(file)  # OpenSSL would wait for a pipe
            context.load_cert_chain(*self._files)

    def look(self) -> int:
        """Check the files; return a number that changes with them."""
        if not self._given or self._clock() < self._next_look:
            return self.generation
        self._next_look = self._clock() + LOOK_AGAIN_S
        try:
            seen = self._stat()
            if seen != self._seen:
                self.into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
                self._seen, self.generation = seen, self.generation + 1
            self._wrong = ""
        except OSError as e:  # being replaced, or invalid: the next check may succeed
            self._wrong = str(e)
            log.warning("the proxy client certificate cannot be loaded: %s", e)
        return self.generation

    def why(self) -> str:
        """Return why the current files are not in use, or ""."""
        self.look()
        return self._wrong

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in map(os.stat, self._files))


class TLSContexts:
    """Client contexts by an APIService's TLS settings, cached per version of our certificate; at most ``MOST_CONTEXTS``, or fewer if they
    trust many CAs."""

    def __init__(self, certificate: ProxyCertificate) -> None:
        self._certificate, self._lock = certificate, threading.Lock()  # guards changes of the cache
        self._made: dict[tuple[str, bool], tuple[int, ssl.SSLContext | TransportError]] = {}
        what = "TLS settings for other API servers"
        caches.follow("aggregator_tls", what, MOST_CONTEXTS * CONTEXT_BYTES, self, TLSContexts._bytes)

    def _bytes(self) -> int:
        return sum(context_bytes(len(ca_bundle), CONTEXT_BYTES) for ca_bundle, _ in list(self._made))

    def of(self, ca_bundle: str, insecure: bool) -> ssl.SSLContext:
        """Return the context. ``ca_bundle`` is base64; if it is empty the system's CAs are trusted. Raises TransportError."""
        generation = self._certificate.look()
        found = self._made.get((ca_bundle, insecure))
        context = found[1] if found is not None and found[0] == generation else self._keep(generation, ca_bundle, insecure)
        if isinstance(context, TransportError):
            raise TransportError(str(context))
        return context

    def ready(self, ca_bundle: str, insecure: bool) -> Awaitable[object] | None:
        """Return what to await before ``of``, or None: CAs are loaded in the thread pool, which takes tens of milliseconds."""
        generation = self._certificate.look()
        found = self._made.get((ca_bundle, insecure))
        if insecure or (found is not None and found[0] == generation):
            return None
        return POOL.run(self._keep, generation, ca_bundle, insecure)

    def _keep(self, generation: int, ca_bundle: str, insecure: bool) -> ssl.SSLContext | TransportError:
        try:
            made: ssl.SSLContext | TransportError = self._context(ca_bundle, insecure)
        except TransportError as e:
            made = e.with_traceback(None)
        with self._lock:
            self._made.pop((ca_bundle, insecure), None)
            self._made[ca_bundle, insecure] = generation, made
            while len(self._made) > MOST_CONTEXTS or (len(self._made) > 1 and self._bytes() > MOST_CONTEXTS * CONTEXT_BYTES):
                del self._made[next(iter(self._made))]
        return made

    def keep(self, wanted: Container[tuple[str, bool]]) -> None:
        """Drop contexts that are not in ``wanted``, (CA bundle, insecure); the one without verification may stay."""
        with self._lock:
            for key in [key for key in self._made if key != ("", True) and key not in wanted]:
                del self._made[key]

    def _context(self, ca_bundle: str, insecure: bool) -> ssl.SSLContext:
        context = trust_as_go(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif ca_bundle:
            try:
                trust_authorities(context, base64.b64decode(ca_bundle))
            except AuthoritiesError as e:
                raise TransportError(str(e)) from None
        else:
            context.load_default_certs()
        try:
            self._certificate.into(context)
        except OSError as e:
            raise TransportError(f"tls: failed to load the client certificate: {e}") from e
        return context


def user_headers(user: UserInfo, with_uid: bool = True) -> Headers:
    """Return ``X-Remote-User``, ``-Uid``, ``-Group`` and ``-Extra-*``: the user's identity, for a backend that trusts our certificate.

    Raises ValueError, which names the header, for a value no header can hold: omitting it would change the identity.
    """
    out = [(b"x-remote-user", _value("X-Remote-User", user.name))]
    if with_uid and user.uid:
        out.append((b"x-remote-uid", _value("X-Remote-Uid", user.uid)))
    out += [(b"x-remote-group", _value("X-Remote-Group", group)) for group in user.groups]
    for key, values in user.extra.items():
        name = f"X-Remote-Extra-{_escaped(key)}"
        out += [(name.lower().encode(), _value(name, value)) for value in values]
    return out


def _value(name: str, text: str) -> bytes:
    found = text.encode("utf-8", "surrogateescape")
    if any((b < 0x20 and b != 9) or b == 0x7F for b in found):
        raise ValueError(f'net/http: invalid header field value for "{name}"')
    return found


def _escaped(key: str) -> str:
    """Escape an extra key for a header name (client-go's ``headerKeyEscape``)."""
    return "".join(chr(b) if b in _LEGAL else f"%{b:02X}" for b in key.encode("utf-8", "surrogateescape"))
