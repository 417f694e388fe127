"""An etcd with users: kas as a user who may read and write its own keys only.

Newer versions of etcd restrict Status and compaction to root. Here any version does: the calls are sent to methods that every version
restricts to root, with the same error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kas.store import Op, StoreError
from kas.store.etcd import client as etcd_client
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import ALARM, COMPACT, PUT, RANGE, STATUS, AsyncClient, Call, Client, Config, Denied
from kas.store.etcd.compactor import KEY, Compactor
from kas.store.etcd.replicator import tells_progress_in_order
from tests import prerequisites
from tests.contract.store_suite import draft
from tests.etcd import Etcd
from tests.store.test_etcd_store import A, B, Server

ROOTS_ALONE = "/etcdserverpb.Auth/UserList"


class WithUsers(Etcd):
    """Has root, and a user kas with the role that docs/scale-out.md asks for."""

    user = ""

    @property
    def config(self) -> Config:
        return self.known_as(self.user)

    def known_as(self, user: str) -> Config:
        return replace(super().config, username=user, password=user and "secret")

    def ctl(self, *command: str) -> None:
        etcdctl = prerequisites.program("etcdctl", "Debian's etcd-client")
        known = ("--user", f"{self.user}:secret") if self.user else ()
        env = {**os.environ, "ETCDCTL_API": "3"}
        subprocess.run([etcdctl, "--endpoints", self.url, *known, *command], check=True, capture_output=True, env=env)

    def with_users(self) -> WithUsers:
        self.ctl("user", "add", "root:secret")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("user", "add", "kas:secret")
        self.ctl("role", "add", "kas")
        self.ctl("role", "grant-permission", "kas", "readwrite", "/registry/", "/registry0")
        self.ctl("role", "grant-permission", "kas", "readwrite", KEY.decode())
        self.ctl("user", "grant-role", "kas", "kas")
        self.ctl("auth", "enable")
        self.user = "kas"
        return self


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[WithUsers]:
    with WithUsers(tmp_path) as etcd:
        yield etcd.with_users()


@pytest.fixture(params=["told to all", "told to root"])
def hidden(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether Status and compaction are restricted to root."""
    calls: list[Call] = [STATUS, COMPACT] if request.param == "told to root" else []
    paths = [call.path for call in calls]
    for call in calls:
        object.__setattr__(call, "path", ROOTS_ALONE)
    yield
    for call, path in zip(calls, paths, strict=True):
        object.__setattr__(call, "path", path)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("user", ["kas", "root"])
def test_a_user_with_access_to_its_own_keys_is_served(etcd: WithUsers, tmp_path: Path, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    etcd.user = user
    server, other = Server(etcd, tmp_path / "replica"), Client(etcd.config)

    async def check() -> None:
        store = server.store
        store.start(asyncio.get_running_loop())
        await store.commit(Op(A, draft(), 0))
        other.call(PUT, pb.PutRequest(key=B.encode(), value=draft(data="else").json))
        await store.fresh()
        assert store.get(A) and store.get(B)
        await store.commit(Op("/registry/events/ns/e", draft(lease_s=60), 0))
        await store.probe()
        assert (store.unreachable(5.0), store.full()) == ("", "")

    try:
        asyncio.run(check())
        assert not server.failed
        monkeypatch.setattr(etcd_client, "WHICH_S", 60.0)
        assert other.has(other.call(RANGE, pb.RangeRequest(key=b"/registry/")).header.cluster_id)
        monkeypatch.setattr(etcd_client, "WHICH_S", 0.1)  # which is tried in vain
        assert not other.has(1)
    finally:
        other.close()
        server.stop()


@pytest.mark.parametrize("hides_status", [False, True])
@pytest.mark.parametrize("alarm", [pb.AlarmMember.NOSPACE, pb.AlarmMember.CORRUPT])
def test_alarms_are_reported_with_and_without_status(
    etcd: WithUsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alarm: int, hides_status: bool
) -> None:
    server, root = Server(etcd, tmp_path / "replica"), Client(etcd.known_as("root"))
    asks = server.store._if_allowed

    async def refused(call: Any, request: Any) -> Any:
        return None if call is STATUS else await asks(call, request)

    if hides_status:  # not as ``hidden`` does: while an alarm is active, etcd checks no roles
        monkeypatch.setattr(server.store, "_if_allowed", refused)

    async def told() -> tuple[str, str]:
        await server.store.probe()
        return server.store.full(), server.store.lost()

    async def check() -> None:
        server.store.start(asyncio.get_running_loop())
        assert await told() == ("", "")
        member = root.call(RANGE, pb.RangeRequest(key=b"/")).header.member_id
        root.call(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, memberID=member, alarm=alarm))
        full = ("database space exceeded", "")
        assert await told() == (full if alarm == pb.AlarmMember.NOSPACE else ("", "etcdserver: corrupt cluster"))
        root.call(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, memberID=member, alarm=alarm))
        assert await told() == ("", "")

    try:
        asyncio.run(check())
    finally:
        root.close()
        server.stop()


def test_authentication_can_be_enabled_and_disabled_while_running(tmp_path: Path) -> None:
    """As with clientv3, a client with a user name is served by an etcd without authentication, and continues when it is enabled."""
    with WithUsers(tmp_path) as etcd:
        config = etcd.known_as("kas")
        client = Client(config)

        async def check() -> None:
            beside = AsyncClient(config)

            async def both() -> None:
                await beside.call(PUT, pb.PutRequest(key=b"/registry/a"))
                await asyncio.to_thread(client.call, PUT, pb.PutRequest(key=b"/registry/b"))

            await both()
            await asyncio.to_thread(etcd.with_users)
            await both()
            etcd.user = "root"
            await asyncio.to_thread(etcd.ctl, "auth", "disable")
            client._metadata = beside._metadata = None  # as a client that starts now
            await both()
            await beside.close()
            with pytest.raises(StoreError, match="invalid user ID or password"):
                etcd.user = ""
                await asyncio.to_thread(etcd.ctl, "auth", "enable")
                await asyncio.to_thread(Client(replace(config, password="else")).call, RANGE, pb.RangeRequest(key=b"/registry/a"))

        try:
            asyncio.run(check())
        finally:
            client.close()


def test_a_refused_password_is_not_retried_by_each_call(etcd: WithUsers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking a password takes etcd a tenth of a second of CPU."""

    async def check() -> None:
        client, logins = AsyncClient(replace(etcd.config, password="else")), 0
        authenticate = client._authenticate

        async def counted() -> Any:
            nonlocal logins
            logins += 1
            return await authenticate()

        client._authenticate = counted  # type: ignore[method-assign]
        monkeypatch.setattr(etcd_client, "REFUSED_S", 1000.0)
        for _ in range(3):
            with pytest.raises(StoreError, match="invalid user ID or password") as caught:
                await client.call(RANGE, pb.RangeRequest(key=b"/registry/a"))
            assert type(caught.value) is StoreError
        assert logins == 1
        client._refused_until = 0.0  # that interval has passed
        client._config = etcd.config
        assert await client.call(RANGE, pb.RangeRequest(key=b"/registry/a"))
        assert (logins, client._refused) == (2, "")
        await client.close()

    asyncio.run(check())


def test_an_etcd_that_hides_its_version_counts_as_new(etcd: WithUsers) -> None:
    client = Client(etcd.config)
    path = STATUS.path
    object.__setattr__(STATUS, "path", ROOTS_ALONE)
    try:
        assert tells_progress_in_order(client)
    finally:
        object.__setattr__(STATUS, "path", path)
        client.close()


def test_a_user_without_the_right_to_compact_leaves_it_to_others(etcd: WithUsers, caplog: pytest.LogCaptureFixture) -> None:
    client, root = Client(etcd.config), Client(etcd.known_as("root"))
    path = COMPACT.path
    object.__setattr__(COMPACT, "path", ROOTS_ALONE)
    try:
        compactor = Compactor(client, 0)
        assert compactor.turn() == 0
        with caplog.at_level(logging.WARNING, "kas.store.etcd"):
            assert compactor.turn() == 0
        assert "role root" in caplog.text
        before = root.call(RANGE, pb.RangeRequest(key=KEY)).kvs[0].version
        assert (compactor.turn(), compactor.turn()) == (0, 0)
        assert root.call(RANGE, pb.RangeRequest(key=KEY)).kvs[0].version == before, "another server takes this for a turn that was taken"
        object.__setattr__(COMPACT, "path", path)
        etcd.user = "root"
        etcd.ctl("user", "grant-role", "kas", "root")
        assert compactor.turn() > 0
    finally:
        object.__setattr__(COMPACT, "path", path)
        root.close()
        client.close()


def test_logging_in_counts_towards_the_calls_time(etcd: WithUsers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of another cluster is left for the next one as soon as without authentication."""
    client, tries = Client(etcd.config), []
    fresh = Client._fresh

    def counted(*args: Any) -> Any:
        tries.append(args)
        return fresh(*args)

    monkeypatch.setattr(Client, "_fresh", counted)
    monkeypatch.setattr(etcd_client, "WHICH_S", 0.01)
    try:
        assert not client.has(1)
        assert len(tries) == 1  # no time is left for a second one
    finally:
        client.close()


def test_permission_errors_of_etcds_user_say_so(etcd: WithUsers) -> None:
    client = Client(etcd.config)
    try:
        with pytest.raises(Denied, match="permission denied"):
            client.call(PUT, pb.PutRequest(key=b"/elsewhere"))
        with pytest.raises(Denied, match="permission denied"):
            list(client.snapshot())
    finally:
        client.close()
