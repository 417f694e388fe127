"""This host's address, chosen as apimachinery's ``util/net`` does."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import re
import socket
import struct

from kas.meta import ip

LONGEST_NAME = 253
_HOST_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[-A-Za-z0-9_.]*[A-Za-z0-9_])?", re.ASCII)
_SIOCGIFADDR = 0x8915
# From the documentation ranges: a route to them is the default route. Nothing is sent.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_host_name(text: str) -> bool:
    """Whether a text is a name that a certificate may have: a DNS name whose first label may be ``*``, also with underscores."""
    return len(text) <= LONGEST_NAME and _HOST_NAME.fullmatch(text) is not None and not text.replace(".", "").isdigit()


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network of a CIDR, None if it is invalid, as ``netutils.ParseCIDRSloppy``: leading zeros are ignored, bits after the
    prefix are dropped, and an address needs a prefix.
    """
    cidr = ip.parse_cidr(text)
    if cidr is None:
        return None
    kind = ipaddress.IPv4Network if cidr.ip.bits == 32 else ipaddress.IPv6Network
    return kind((cidr.network.number, cidr.prefix))


def advertised(asked: str, bind: str) -> str:
    """Return the address to advertise: ``asked``, else ``bind``; if that is unspecified or loopback, this host's address.

    A host that only has loopback addresses gets the loopback address.
    """
    if asked and not ipaddress.ip_address(asked).is_unspecified:
        return asked
    own = ipaddress.ip_address(bind)
    return host_address(own.version) or _loopback(own.version) if own.is_unspecified or own.is_loopback else bind


def reachable(address: str) -> str:
    """Return ``address``, or this host's if it is loopback, which endpoints may not be. It stays loopback if there is no other."""
    own = ipaddress.ip_address(address)
    return host_address(own.version) or address if own.is_loopback else address


def host_address(version: int) -> str:
    """Return the address of the default route's interface, preferably of the given family.

    Otherwise the address of any non-loopback interface (IPv4 only); "" if there is none.
    """
    families = (socket.AF_INET, socket.AF_INET6) if version == 4 else (socket.AF_INET6, socket.AF_INET)
    for family in families:
        found = _source(family)
        if found:
            return found
    addresses = (_of_interface(name) for _, name in socket.if_nameindex())
    return next((a for a in addresses if a and not ipaddress.ip_address(a).is_loopback), "")


def _source(family: socket.AddressFamily) -> str:
    """Return the source address of packets to a remote host; "" without a route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect((_ELSEWHERE[family], 9))
            address: str = s.getsockname()[0]
    except OSError:
        return ""
    own = ipaddress.ip_address(address)
    return "" if own.is_loopback or own.is_link_local or own.is_unspecified else address


def _of_interface(name: str) -> str:
    """Return the first IPv4 address of an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            answer = fcntl.ioctl(s, _SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _loopback(version: int) -> str:
    return "127.0.0.1" if version == 4 else "::1"


def shown(host: str, port: int) -> str:
    """Format an address as in URLs; without the port if it is 0, which means any."""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def unbound(host: str, port: int, error: OSError) -> str:
    """Return the reason why a server cannot listen there, and what to do about it."""
    why = {
        errno.EADDRINUSE: "is in use",
        errno.EADDRNOTAVAIL: "is no address of this machine: see --bind-address",
        errno.EACCES: "may be bound by root alone, or with CAP_NET_BIND_SERVICE",
    }
    return f"{shown(host, port)} {why.get(error.errno or 0, error.strerror)}"
