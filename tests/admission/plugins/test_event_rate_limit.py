"""The EventRateLimit plug-in alone."""

from __future__ import annotations

from typing import Any

import pytest

from kas.admission.configuration import Section
from kas.admission.plugins import event_rate_limit
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import FakeServer, Request, refused

BOB, EVE = UserInfo("bob", ()), UserInfo("eve", ())


def section(api_version: str, kind: str, **fields: Any) -> Section:
    return Section("x", embedded={"apiVersion": api_version, "kind": kind, **fields})


class Clock:
    now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def events(tmp_path):
    """Creates plug-ins of the workers of one server, and a clock for each."""

    def make(*limits: dict[str, Any]) -> tuple[event_rate_limit.Plugin, Clock]:
        clock = Clock()
        config = section("eventratelimit.admission.k8s.io/v1alpha1", "Configuration", limits=list(limits))
        return FakeServer(tmp_path).plugin(event_rate_limit, config, clock=clock), clock

    return make


def event(plugin, user=BOB, namespace="ns1", name="p", source="kubelet", **more) -> Request:
    obj = {
        "metadata": {"name": "e"},
        "source": {"component": source, "host": "h"},
        "involvedObject": {"kind": "Pod", "namespace": "n", "name": name, "uid": "u", "apiVersion": "v1"},
    }
    return Request(plugin, **{"resource": "events", "kind": "Event", "namespace": namespace, "obj": obj, "user": user, **more})


def test_the_server_limit(events):
    plugin, clock = events({"type": "Server", "qps": 10, "burst": 2})
    event(plugin).run()
    event(plugin, user=EVE, namespace="ns2").run()
    e = refused(event(plugin))
    assert (e.code, e.reason, e.message) == (429, "TooManyRequests", "Too many requests: limit reached on type Server for key ")
    assert e.details is None
    event(plugin, dry_run=True).run()
    clock.now += 0.1
    event(plugin, operation="UPDATE").run()
    refused(event(plugin))


def test_namespace_and_user_limits(events):
    plugin, _ = events({"type": "Namespace", "qps": 1, "burst": 1}, {"type": "User", "qps": 1, "burst": 2})
    event(plugin).run()
    assert refused(event(plugin, user=EVE)).message == "Too many requests: limit reached on type Namespace for key ns1"
    event(plugin, namespace="ns2").run()
    assert refused(event(plugin)).message == (
        "Too many requests: [limit reached on type Namespace for key ns1, limit reached on type User for key bob]"
    )
    # A request refused by one limit has still taken a token of the other.
    event(plugin, user=EVE, namespace="ns3").run()
    assert "type User for key eve" in refused(event(plugin, user=EVE, namespace="ns4")).message


def test_workers_share_their_limits(events):
    limits = {"type": "User", "qps": 1, "burst": 2}, {"type": "Server", "qps": 1, "burst": 3}
    (one, clock), (other, _) = events(*limits), events(*limits)
    event(one).run()
    event(other).run()
    assert refused(event(one)).message == "Too many requests: limit reached on type User for key bob"
    assert refused(event(other, user=EVE)).message == "Too many requests: limit reached on type Server for key "
    clock.now += 1.0
    event(one).run()
    refused(event(other))


def test_limits_per_source_and_object(events):
    plugin, _ = events({"type": "SourceAndObject", "qps": 1, "burst": 1})
    event(plugin).run()
    event(plugin, source="scheduler").run()
    event(plugin, name="q").run()
    assert refused(event(plugin)).message == "Too many requests: limit reached on type SourceAndObject for key kubelethPodnpuv1"


def test_only_events_of_the_core_group_count(events):
    plugin, _ = events({"type": "Server", "qps": 1, "burst": 1})
    for _ in range(3):
        event(plugin, group="events.k8s.io").run()
        event(plugin, resource="pods").run()
        event(plugin, operation="DELETE").run()


def test_the_least_recently_used_bucket_is_dropped(events):
    plugin, clock = events({"type": "User", "qps": 1, "burst": 1, "cacheSize": 2})

    def by(name: str) -> Request:
        clock.now += 0.001
        return event(plugin, user=UserInfo(name, ()))

    by("a").run()
    by("b").run()
    refused(by("a"))
    by("c").run()  # replaces b
    refused(by("a"))
    by("b").run()
