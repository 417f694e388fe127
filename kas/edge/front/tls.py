"""The front's side of TLS: OpenSSL contexts, made anew when a file of theirs changes.

Any client certificate is taken in the handshake, also none: whether it means something is the authenticators' to say, as in kube-apiserver,
where a bad one is answered 401 and does no harm beside a good token. That is why the library is pyOpenSSL: Python's own ``ssl`` refuses
the handshake.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto

from kas.edge.descriptors import hold_little
from kas.meta.keys import public_key, usable
from kas.meta.pem import unreadable

log = logging.getLogger("kas.front")

RENEWALS, RENEWED_S = 64, 60.0  # what OpenSSL says of other keys, in so long: some words each time, and clients change them after gigabytes
MOST_SHOWN = 16 << 10  # of all certificates a client shows; they have one or two KiB each
_DER = serialization.Encoding.DER
_RELEASE_BUFFERS = 0x10  # SSL_MODE_RELEASE_BUFFERS: an idle connection keeps no buffers
# ECDHE with authenticated encryption, as rustls offers without the front.
DEFAULT_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


@dataclass(frozen=True)
class Pair:
    """A certificate with its intermediates, its key (PEM files), and the names it is for; none: those it names itself."""

    cert: str
    key: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """What the contexts are made of. ``ciphers`` are OpenSSL's names for TLS 1.2, ``groups`` those of key exchanges, empty for the
    default."""

    default: Pair
    named: Sequence[Pair] = ()
    authorities: Sequence[str] = ()  # files of the CAs whose clients are asked for
    tls13_only: bool = False
    http2: bool = True
    ciphers: Sequence[str] = ()
    groups: Sequence[str] = ()
    files: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        pairs = [file for pair in (self.default, *self.named) for file in (pair.cert, pair.key)]
        object.__setattr__(self, "files", (*pairs, *self.authorities))


class Contexts:
    """``current`` is for new connections; those that are open keep theirs. Raises ``OSError``, ``ValueError`` and ``SSL.Error`` from the
    constructor; from ``refresh`` nothing: what cannot be used is logged, and what was in use stays."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen = self._stamp()
        self.current = self._make()

    def refresh(self) -> None:
        """Makes the contexts anew when a file has changed."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._seen = stamp
            self.current = self._make()
        except (OSError, ValueError, SSL.Error) as e:
            log.error("the serving certificates are as they were: %s", e)
        else:
            log.info("loaded the serving certificates anew")

    def _stamp(self) -> list[tuple[int, int, int]]:
        return [(s.st_mtime_ns, s.st_size, s.st_ino) for s in map(os.stat, self._settings.files)]

    def _make(self) -> SSL.Context:
        authorities = [c for file in self._settings.authorities for c in x509.load_pem_x509_certificates(_read(file))]
        context = self._context(self._settings.default, authorities)
        by_name: dict[str, SSL.Context] = {}
        for pair in self._settings.named:
            other = self._context(pair, authorities)
            for name in pair.names or _names(pair.cert):
                by_name.setdefault(name.lower().rstrip("."), other)

        def choose(connection: SSL.Connection) -> None:
            chosen = _chosen(by_name, connection)
            if chosen is not None:
                connection.set_context(chosen)

        if by_name:
            context.set_tlsext_servername_callback(choose)
        return context

    def _context(self, pair: Pair, authorities: Iterable[x509.Certificate]) -> SSL.Context:
        s = self._settings
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION if s.tls13_only else SSL.TLS1_2_VERSION)
        # A session that is taken up again has lost the client's intermediate certificates: every connection shows them anew.
        context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_info_callback(_count)
        context.set_mode(_RELEASE_BUFFERS)
        context.set_cipher_list(":".join(s.ciphers or (DEFAULT_CIPHERS,)).encode())
        if s.groups:
            _offer_groups(context, s.groups)
        context.use_certificate_chain_file(pair.cert)
        context.use_privatekey_file(pair.key)
        context.check_privatekey()
        if authorities:
            context.set_verify(SSL.VERIFY_PEER, _bearable)
            context.set_verify_depth(0)  # the library would check up to a hundred signatures that say nothing yet
            for authority in authorities:
                context.add_client_ca(authority)
        protocols = [b"h2", b"http/1.1"] if s.http2 else [b"http/1.1"]
        context.set_alpn_select_callback(
            lambda _, offered: next((p for p in protocols if p in offered), SSL.NO_OVERLAPPING_PROTOCOLS)
        )
        return context


class Renewals:
    """How often the client of a connection whose handshake is over wanted more than to be relayed: other keys, another handshake, or to
    say that something is wrong. OpenSSL goes on with that inside of a read for as long as it comes, and it costs the client next to
    nothing; who does it all the time loses the socket ``s``, which ends the read."""

    __slots__ = ("_left", "_since", "_sock")

    def __init__(self, s: socket.socket) -> None:
        self._sock, self._left, self._since = s, RENEWALS, time.monotonic()

    def count(self) -> None:
        """One more."""
        self._left -= 1
        if self._left < 0:
            now = time.monotonic()
            if now - self._since < RENEWED_S:
                with contextlib.suppress(OSError):  # it has gone by itself
                    self._sock.shutdown(socket.SHUT_RDWR)
            self._left, self._since = RENEWALS, now


def _count(connection: SSL.Connection, _where: int, _result: int) -> None:
    found = connection.get_app_data()
    if found is not None:  # the handshake is over
        found.count()


def _offer_groups(context: SSL.Context, groups: Sequence[str]) -> None:
    """pyOpenSSL has a method for a single curve only; the function of the library takes a list, of hybrids, too."""
    if not SSL._lib.SSL_CTX_set1_curves_list(context._context, ":".join(groups).encode()):
        raise ValueError(f"the TLS library knows not all of the key exchanges {', '.join(groups)}")


def _bearable(_connection: SSL.Connection, certificate: crypto.X509, _error: int, _depth: int, _ok: int) -> bool:
    """Takes any certificate but one whose key is too costly to verify a signature with, or so short that anybody could have made it; asked
    about each before that is done. Go ends the handshake then, too."""
    try:
        return usable(public_key(certificate.to_cryptography()))
    except unreadable():
        return False  # a key that nobody could verify anything with


def _chosen(by_name: dict[str, SSL.Context], connection: SSL.Connection) -> SSL.Context | None:
    """By the name the client asks for, one label of which a certificate may leave open."""
    asked = connection.get_servername()
    if not asked:
        return None
    name = asked.decode("ascii", "replace").lower().rstrip(".")
    return by_name.get(name) or by_name.get("*." + name.partition(".")[2])


def _names(file: str) -> list[str]:
    """The names a certificate is for: its alternative ones, else the common name."""
    cert = x509.load_pem_x509_certificates(_read(file))[0]
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [str(a.value) for a in cert.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _read(file: str) -> bytes:
    with open(file, "rb") as f:
        return f.read()


def shown(connection: SSL.Connection) -> list[bytes]:
    """The certificates the client has shown (DER), its own first; none when it has shown none. ``ValueError`` for what is none, and for
    more than ``MOST_SHOWN`` bytes: anybody may show anything, and it is kept as long as the connection."""
    try:
        own = connection.get_peer_certificate(as_cryptography=True)
        if own is None:
            return []
        # A server's list of OpenSSL begins with the intermediates.
        first = own.public_bytes(_DER)
        more = [c.public_bytes(_DER) for c in connection.get_peer_cert_chain(as_cryptography=True) or ()]
    except unreadable() as e:
        raise ValueError(str(e)) from None
    chain = [first, *(der for der in more if der != first)]
    if sum(map(len, chain)) > MOST_SHOWN:
        raise ValueError("the client shows too much")
    return chain


def host(address: str) -> str:
    """A client's address as text; one of IPv4 that came over IPv6 as that of IPv4."""
    ip = ipaddress.IPv6Address(address) if ":" in address else None
    return address if ip is None or ip.ipv4_mapped is None else str(ip.ipv4_mapped)


def listen(sock: socket.socket, backlog: int) -> None:
    """Starts to listen on a socket that is bound already."""
    hold_little(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its connections have it, too: those that ended do not hold the port
    sock.setblocking(False)
    sock.listen(backlog)
