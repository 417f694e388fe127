"""etcd servers whose host name has several addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kas.store import Unavailable
from kas.store.etcd import client as etcd_client
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, Config
from kas.store.etcd.rpc import looped
from kas.store.etcd.rpc.looped import address_share
from tests.store.test_etcd_rpc import Peer, Talk, ask

__all__ = ["ask"]
NAME, HANGS, REFUSES = "etcd.example", "127.0.0.2", "127.0.0.3"


def answers(talk: Talk) -> None:
    talk.greet()
    while True:
        talk.answer(talk.request()[0])


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """A server on 127.0.0.1. On the same port of ``HANGS`` connections are accepted and never answered."""
    monkeypatch.setattr(looped, "LEAST_DIAL_S", 0.05)
    monkeypatch.setattr(etcd_client, "DIAL_S", 1.0)
    with Peer(answers) as peer, socket.create_server((HANGS, int(peer.url.rpartition(":")[2]))):
        yield peer


def named(monkeypatch: pytest.MonkeyPatch, peer: Peer, *addresses: str) -> Config:
    resolve = socket.getaddrinfo

    def resolved(host: Any, port: Any, *args: Any, **more: Any) -> list[Any]:
        if host != NAME:
            return resolve(host, port, *args, **more)
        return [found for address in addresses for found in resolve(address, port, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return replace(peer.config, servers=(peer.url.replace("127.0.0.1", NAME),))


@pytest.mark.parametrize("others", [(HANGS,), (REFUSES,), (HANGS, REFUSES)])
def test_an_unresponsive_address_leaves_time_for_the_others(
    ask: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    config = named(monkeypatch, peer, *others, "127.0.0.1")
    assert ask(config, RANGE, pb.RangeRequest(), 60.0).header.revision == 7
    assert not peer.failed


def test_unavailable_if_no_address_answers(ask: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable):
        ask(named(monkeypatch, peer, HANGS, REFUSES), RANGE, pb.RangeRequest(), 0.3)
    assert peer.connections == 0


def test_the_time_per_address_is_that_of_gos_dialer() -> None:
    assert [address_share(20.0, 4), address_share(20.0, 1), address_share(3.0, 3), address_share(1.0, 2)] == [5.0, 20.0, 2.0, 1.0]
