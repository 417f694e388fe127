"""Which address of this host is advertised."""

from __future__ import annotations

import errno
import ipaddress
import os

import pytest

from kas.config import address
from kas.config.options import Options, complete


def test_a_configured_or_bound_address_is_used():
    assert address.advertised("192.0.2.7", "0.0.0.0") == "192.0.2.7"
    assert address.advertised("", "198.51.100.1") == "198.51.100.1"
    assert address.advertised("0.0.0.0", "198.51.100.1") == "198.51.100.1"  # unspecified counts as unset


@pytest.mark.parametrize("bind", ["0.0.0.0", "127.0.0.1", "::", "::1"])
@pytest.mark.parametrize("own", ["198.51.100.1", ""])
def test_otherwise_the_hosts_address_is_used(bind, own, monkeypatch):
    monkeypatch.setattr(address, "host_address", lambda version: own)
    loopback = "::1" if ":" in bind else "127.0.0.1"
    assert address.advertised("", bind) == (own or loopback)
    assert address.advertised("0.0.0.0", bind) == (own or loopback)


def test_loopback_is_used_only_without_another_address(monkeypatch):
    monkeypatch.setattr(address, "host_address", lambda version: "198.51.100.1")
    assert address.reachable("127.0.0.1") == "198.51.100.1" and address.reachable("192.0.2.7") == "192.0.2.7"
    completed = complete(Options({"advertise-address": "127.0.0.1"}))
    assert (completed.advertise_address, completed.endpoint_address) == ("127.0.0.1", "198.51.100.1")
    monkeypatch.setattr(address, "host_address", lambda version: "")
    assert address.reachable("127.0.0.1") == "127.0.0.1"


def test_this_hosts_address_is_not_loopback():
    for version in (4, 6):
        found = address.host_address(version)
        assert not found or not (ipaddress.ip_address(found).is_loopback or ipaddress.ip_address(found).is_unspecified)


def test_without_a_default_route_an_interface_is_used(monkeypatch):
    monkeypatch.setattr(address, "_source", lambda family: "")
    monkeypatch.setattr(address.socket, "if_nameindex", lambda: [(1, "lo"), (2, "gone0"), (3, "eth0")])
    monkeypatch.setattr(address, "_of_interface", {"lo": "127.0.0.1", "gone0": "", "eth0": "192.168.3.4"}.__getitem__)
    assert address.host_address(4) == "192.168.3.4"


@pytest.mark.parametrize(("error", "said"), [
    (errno.EADDRINUSE, "[::1]:443 is in use"), (errno.EADDRNOTAVAIL, "[::1]:443 is no address of this machine: see --bind-address"),
    (errno.EACCES, "[::1]:443 may be bound by root alone, or with CAP_NET_BIND_SERVICE"),
    (errno.ENOBUFS, "[::1]:443 No buffer space available"),
])  # fmt: skip
def test_an_address_that_cannot_be_bound_is_reported_with_advice(error: int, said: str):
    assert address.unbound("::1", 443, OSError(error, os.strerror(error))) == said
    assert address.shown("127.0.0.1", 0) == "127.0.0.1" and address.shown("127.0.0.1", 6443) == "127.0.0.1:6443"
