"""The front's side of TLS: OpenSSL contexts, which are rebuilt when one of their files changes.

The handshake accepts any client certificate, and none. Whether it means anything is decided by the authenticators,
as in kube-apiserver, where a bad certificate is answered 401 and does no harm next to a valid token. That is why
pyOpenSSL is used: Python's own ``ssl`` fails the handshake.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto

from kas.edge.descriptors import limit_buffers
from kas.meta.files import read_configuration
from kas.meta.names import is_dns1123_subdomain
from kas.meta.pem import unreadable
from kas.meta.publickeys import public_key, usable

log = logging.getLogger("kas.front")
T = TypeVar("T")

# key updates and other messages that OpenSSL handles by itself, in RENEWED_S: each reports a few, and clients change
# keys after gigabytes
RENEWALS, RENEWED_S = 64, 60.0
AGAIN_S = 60.0  # until a file that cannot be used is tried again even if it is unchanged
MOST_SHOWN = 16 << 10  # bytes of all certificates that a client presents; they have one or two KiB each
_DER = serialization.Encoding.DER
_RELEASE_BUFFERS = 0x10  # SSL_MODE_RELEASE_BUFFERS: an idle connection keeps no buffers
# ECDHE with authenticated encryption, as rustls offers without the front.
DEFAULT_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


@dataclass(frozen=True)
class Pair:
    """A certificate with its intermediates, its key (PEM files), and the names it is for; without names, those that
    it has itself."""

    cert: str
    key: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.cert


@dataclass(frozen=True)
class Settings:
    """What the contexts are made of. ``ciphers`` are OpenSSL's names for TLS 1.2, ``groups`` those of key exchanges;
    empty for the default."""

    default: Pair
    named: Sequence[Pair] = ()
    authorities: Sequence[str] = ()  # files of the CAs that are announced to clients
    tls13_only: bool = False
    http2: bool = True
    ciphers: Sequence[str] = ()
    groups: Sequence[str] = ()
    files: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        pairs = [file for pair in (self.default, *self.named) for file in (pair.cert, pair.key)]
        object.__setattr__(self, "files", (*pairs, *self.authorities))


class Contexts:
    """``current`` is the context for new connections; open ones keep theirs.

    The constructor raises ``OSError``, ``ValueError`` and ``SSL.Error``. ``refresh`` raises nothing: a pair or CA
    file that cannot be used is logged and stays as it was, while the others change.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: dict[Hashable, Any] = {}
        self._stale = False  # whether anything stayed as it was
        self._seen, self._tried = self._stamp(), time.monotonic()
        self.current = self._make()

    def refresh(self) -> None:
        """Rebuilds the contexts when a file has changed, or if one could not be used a minute ago."""
        stamp, now = self._stamp(), time.monotonic()
        if stamp == self._seen and not (self._stale and now - self._tried >= AGAIN_S):
            return
        self._seen, self._tried, self._stale = stamp, now, False
        self.current = self._make()
        if not self._stale:
            log.info("loaded the serving certificates anew")

    def _stamp(self) -> list[tuple[int, int, int] | None]:
        return [_stat(file) for file in self._settings.files]

    def _made_or_last(self, files: Hashable, make: Callable[[], T]) -> T:
        """Returns ``make()``, or its last result for ``files`` if there is one and the files cannot be used now."""
        wrong: tuple[type[Exception], ...] = (OSError, SSL.Error, *unreadable())
        try:
            made = self._last[files] = make()
        except wrong as e:
            if files not in self._last:
                raise
            self._stale = True
            log.error("the serving certificates are unchanged: %s: %s", files, e)
            made = self._last[files]
        return made

    def _make(self) -> SSL.Context:
        authorities = self._made_or_last(", ".join(self._settings.authorities), self._authorities)

        def made(pair: Pair) -> tuple[SSL.Context, _Names]:
            return self._made_or_last(pair, lambda: (self._context(pair, authorities), _Names(pair.cert)))

        named = [(pair, *made(pair)) for pair in self._settings.named]
        by_name = _Chosen()
        for pair, other, _ in named:
            by_name.add(pair.names, other)
        for pair, other, names in named:
            if not pair.names:
                by_name.add((*names.common, *names.dns), other)
        # A name that no pair was chosen for goes to any certificate that is good for it, the default one first.
        fitting = _Chosen()
        context, default = made(self._settings.default)
        for other, names in ((context, default), *((other, names) for _, other, names in named)):
            fitting.add((*names.dns, *names.ips), other)

        def choose(connection: SSL.Connection) -> None:
            asked = (connection.get_servername() or b"").decode("ascii", "replace").lower().rstrip(".")
            # A client that connects to an IP address sends no name.
            chosen = by_name.of(asked) or fitting.of(asked) if asked else by_name.get(host(connection.getsockname()[0]))
            if chosen is not None and chosen is not context:
                connection.set_context(chosen)

        if by_name:
            context.set_tlsext_servername_callback(choose)
        return context

    def _authorities(self) -> list[x509.Certificate]:
        return [c for file in self._settings.authorities for c in x509.load_pem_x509_certificates(read_configuration(file))]

    def _context(self, pair: Pair, authorities: Iterable[x509.Certificate]) -> SSL.Context:
        s = self._settings
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION if s.tls13_only else SSL.TLS1_2_VERSION)
        # A resumed session has lost the client's intermediate certificates, so every connection presents them anew.
        context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_info_callback(_count)
        context.set_mode(_RELEASE_BUFFERS)
        context.set_cipher_list(":".join(s.ciphers or (DEFAULT_CIPHERS,)).encode())
        if s.groups:
            _offer_groups(context, s.groups)
        for file in (pair.cert, pair.key):
            read_configuration(file)  # OpenSSL would wait for a pipe
        context.use_certificate_chain_file(pair.cert)
        context.use_privatekey_file(pair.key)
        context.check_privatekey()
        if authorities:
            context.set_verify(SSL.VERIFY_PEER, _acceptable)
            context.set_verify_depth(0)  # the library would verify up to a hundred signatures that mean nothing yet
            for authority in authorities:
                context.add_client_ca(authority)
        protocols = [b"h2", b"http/1.1"] if s.http2 else [b"http/1.1"]
        context.set_alpn_select_callback(
            lambda _, offered: next((p for p in protocols if p in offered), SSL.NO_OVERLAPPING_PROTOCOLS)
        )
        return context


class Renewals:
    """Limits what the client of an established connection may do besides sending data: change keys, renegotiate, or
    send alerts. OpenSSL handles these inside a read for as long as they arrive, and they cost the client next to
    nothing. A client that keeps on loses the socket ``s``, which ends the read."""

    __slots__ = ("_left", "_since", "_sock")

    def __init__(self, s: socket.socket) -> None:
        self._sock, self._left, self._since = s, RENEWALS, time.monotonic()

    def count(self) -> None:
        """Counts one."""
        self._left -= 1
        if self._left < 0:
            now = time.monotonic()
            if now - self._since < RENEWED_S:
                with contextlib.suppress(OSError):  # it has closed by itself
                    self._sock.shutdown(socket.SHUT_RDWR)
            self._left, self._since = RENEWALS, now


def _count(connection: SSL.Connection, _where: int, _result: int) -> None:
    found = connection.get_app_data()
    if found is not None:  # the handshake is done
        found.count()


def _offer_groups(context: SSL.Context, groups: Sequence[str]) -> None:
    """Sets the key exchanges. pyOpenSSL's method takes a single curve; the library's function takes a list, which
    may name hybrids."""
    if not SSL._lib.SSL_CTX_set1_curves_list(context._context, ":".join(groups).encode()):
        raise ValueError(f"the TLS library knows not all of the key exchanges {', '.join(groups)}")


def _acceptable(_connection: SSL.Connection, certificate: crypto.X509, _error: int, _depth: int, _ok: int) -> bool:
    """Accepts any certificate but one whose key is too costly to verify a signature with, or so short that anybody
    could have made it. OpenSSL calls this for each certificate before it verifies. Go fails the handshake as well."""
    try:
        return usable(public_key(certificate.to_cryptography()))
    except unreadable():
        return False  # a key that cannot verify anything


class _Chosen(dict[str, SSL.Context]):
    """Contexts by name; the first one for a name keeps it."""

    def add(self, names: Iterable[str], context: SSL.Context) -> None:
        """Maps ``names`` to ``context`` unless they are taken."""
        for name in names:
            self.setdefault(name.lower().rstrip("."), context)

    def of(self, asked: str) -> SSL.Context | None:
        """The context for a name, or for a wildcard in the place of its first label."""
        _, dot, rest = asked.partition(".")
        return self.get(asked) or self.get(f"*{dot}{rest}")


class _Names:
    """What a certificate (PEM file) is for: its common name if that is a domain, its alternative names and its
    addresses."""

    def __init__(self, file: str) -> None:
        cert = x509.load_pem_x509_certificates(read_configuration(file))[0]
        subject = cert.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        self.common = [name for a in subject[-1:] if _domain(name := str(a.value))]
        self.dns: list[str] = []
        self.ips: list[str] = []
        with contextlib.suppress(x509.ExtensionNotFound):
            names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            self.dns = names.get_values_for_type(x509.DNSName)
            self.ips = [str(ip) for ip in names.get_values_for_type(x509.IPAddress)]


def _domain(name: str) -> bool:
    """Whether a common name is a domain. An IP address is not: a client that connects to one must not be shown a
    certificate for a name."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return False
    return name == "*" or not is_dns1123_subdomain(name.removeprefix("*."))


def _stat(file: str) -> tuple[int, int, int] | None:
    try:
        s = os.stat(file)
    except OSError:
        return None
    return s.st_mtime_ns, s.st_size, s.st_ino


def shown(connection: SSL.Connection) -> list[bytes]:
    """The certificates that the client has presented (DER), its own first; empty if there are none. Raises
    ``ValueError`` if they cannot be parsed, and for more than ``MOST_SHOWN`` bytes: they are kept as long as the
    connection, and nobody has checked them."""
    try:
        own = connection.get_peer_certificate(as_cryptography=True)
        if own is None:
            return []
        # OpenSSL's list on a server begins with the intermediates.
        first = own.public_bytes(_DER)
        more = [c.public_bytes(_DER) for c in connection.get_peer_cert_chain(as_cryptography=True) or ()]
    except unreadable() as e:
        raise ValueError(str(e)) from None
    chain = [first, *(der for der in more if der != first)]
    if sum(map(len, chain)) > MOST_SHOWN:
        raise ValueError("the client shows too much")
    return chain


def host(address: str) -> str:
    """A client's address as text; an IPv4 address that is mapped to IPv6 in its IPv4 form."""
    ip = ipaddress.IPv6Address(address) if ":" in address else None
    return address if ip is None or ip.ipv4_mapped is None else str(ip.ipv4_mapped)


def listen(sock: socket.socket, backlog: int) -> None:
    """Starts to listen on a bound socket."""
    limit_buffers(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # accepted connections inherit it, so that closed ones do not hold the port
    sock.setblocking(False)
    sock.listen(backlog)
