"""Every health check depends on something that can fail, and fails with it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from types import SimpleNamespace

import pytest

from kas.config import features
from kas.controllers.runner import keep
from kas.endpoints import healthchecks
from kas.endpoints.healthchecks import FAIRNESS_UPKEEP, LOOPS, PARTS, PROXY_CERTIFICATE, STEPS, UPKEEP, steps
from kas.observe import logs
from kas.request.http import Request
from kas.store import Op, Unavailable, build_record
from tests import pki
from tests.server.whole import World

GROUPS = ("healthz", "livez", "readyz")
WORK = {**UPKEEP, **FAIRNESS_UPKEEP}
COMMON = tuple(dict.fromkeys(("ping", "log", "etcd", "autoregister-completion", *STEPS, *LOOPS.values(), *WORK.values(), *PARTS)))
NAMES = {"healthz": COMMON, "livez": COMMON, "readyz": (*COMMON, "etcd-readiness", "etcd-space", "informer-sync", "shutdown")}


@pytest.fixture
def world(tmp_path):
    made = []

    def make(without: str = "", **flags) -> World:
        made.append(World(tmp_path, without, **flags))
        return made[-1]

    yield make
    for w in made:
        w.close()


@pytest.mark.parametrize("group", GROUPS)
def test_a_started_server_passes_every_check(world, group):
    w = world()
    assert w.ask(f"/{group}") == (200, "ok")
    status, body = w.ask(f"/{group}", "verbose")
    assert status == 200 and body.splitlines()[-1] == f"{group} check passed"
    assert {line[3:].removesuffix(" ok") for line in body.splitlines()[:-1]} == set(NAMES[group])
    assert all(w.ask(f"/{group}/{name}") == (200, "ok") for name in NAMES[group])


def with_parts(*hooks: str) -> set[str]:
    return {*hooks, *(part for part, hook in PARTS.items() if hook in hooks)}


def test_checks_that_operators_look_for_exist(world):
    """Checks that upstream's end-to-end tests expect in each of the three endpoints."""
    w = world()
    wanted = {
        "ping", "log", "etcd", "autoregister-completion",
        *(f"poststarthook/{name}" for name in (
            "start-apiserver-admission-initializer", "generic-apiserver-start-informers", "start-apiextensions-informers",
            "start-apiextensions-controllers", "crd-informer-synced", "bootstrap-controller", "start-system-namespaces-controller",
            "scheduling/bootstrap-system-priority-classes", "start-cluster-authentication-info-controller",
            "start-kube-aggregator-informers", "apiservice-registration-controller", "apiservice-status-local-available-controller",
            "apiservice-status-remote-available-controller", "kube-apiserver-autoregistration", "apiservice-openapi-controller",
        )),
    }  # fmt: skip
    for group in GROUPS:
        assert {f"[+]{name} ok" for name in wanted} <= set(w.ask(f"/{group}", "verbose=1")[1].splitlines())


def test_a_start_step_without_its_gate_has_no_check():
    on = features.enabled({})
    assert steps(on) == STEPS
    assert set(STEPS) - set(steps(on - {"WatchCacheInitializationPostStartHook"})) == {"poststarthook/storage-readiness"}


def full_disk(w: World) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    handler = logs.Handler(Full())
    w.handlers.append(handler)
    logging.getLogger().addHandler(handler)
    handler.handle(logging.makeLogRecord({"msg": "x"}))


def crash(controller: str, error: Exception | None = None):
    class Crashes:
        name = controller

        async def run(self) -> None:
            raise error or RuntimeError("bug")

    async def go(w: World) -> None:
        # The runner's task pauses after the crash; the check is read then.
        task = asyncio.ensure_future(keep(Crashes(), w.server.hooks))
        await asyncio.sleep(0)
        task.cancel()

    def crashed(w: World) -> None:
        w.server.hooks.lead()
        asyncio.run(go(w))

    return crashed


def stick(work: str, error: Exception | None = None):
    """A step of the worker's periodic work fails with ``error``; without one it succeeds."""

    def fails() -> None:
        if error is not None:
            raise error

    async def go(w: World) -> None:
        task = asyncio.ensure_future(w.runner._every(work, 0, fails))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()

    return lambda w: asyncio.run(go(w))


# name -> (what is left out of the start, what is broken afterwards)
BREAKS = {
    "ping": ("heartbeat", None),
    "log": ("", full_disk),
    "etcd": ("", lambda w: w.store.close()),
    "etcd-readiness": ("", lambda w: w.store.close()),
    "autoregister-completion": ("bootstrap", None),
    "shutdown": ("", lambda w: setattr(w.server, "shutting_down", True)),
    "etcd-space": ("", lambda w: setattr(w.store, "full", lambda: "database space exceeded")),
    "informer-sync": ("derived", None),
    "poststarthook/generic-apiserver-start-informers": ("derived", None),
    "poststarthook/rbac/bootstrap-roles": ("bootstrap", None),
    "poststarthook/scheduling/bootstrap-system-priority-classes": ("bootstrap", None),
    "poststarthook/priority-and-fairness-config-producer": ("bootstrap", None),
    "poststarthook/kube-apiserver-autoregistration": ("bootstrap", None),
    "poststarthook/storage-readiness": ("storage", None),
    "poststarthook/apiservice-registration-controller": ("derived", None),
    "poststarthook/apiservice-discovery-controller": ("derived", None),
    "poststarthook/crd-informer-synced": ("derived", None),
    **{hook: ("", crash(controller)) for controller, hook in LOOPS.items() if hook not in STEPS},
    **{hook: ("", stick(work, RuntimeError("bug"))) for work, hook in FAIRNESS_UPKEEP.items()},
}
BREAKS |= {part: BREAKS[hook] for part, hook in PARTS.items()}


def test_a_store_whose_file_was_deleted_is_not_ready(world, tmp_path):
    """It accepts writes until it is closed, and then they are lost. It stays live: a restart would find nothing."""
    w = world()
    assert w.ask("/readyz/etcd-readiness") == (200, "ok")
    (file,) = tmp_path.rglob("data.mdb")
    file.rename(file.with_name("kept"))
    assert w.failing("readyz") == {"etcd-readiness"} and w.failing("livez") == set()
    assert w.ask("/readyz/etcd-readiness")[1] == f"internal server error: {file} is not the file that was opened\n"
    file.write_bytes(b"")
    assert w.failing("readyz") == {"etcd-readiness"}
    file.with_name("kept").rename(file)
    assert w.failing("readyz") == set()


def test_the_log_says_why_a_check_failed(world, caplog):
    """From -v 1 on; the answer does not."""
    w = world()
    with caplog.at_level(logging.INFO, "kas.health"):
        assert w.ask("/readyz", "verbose")[0] == 200 and caplog.records == []
        w.server.shutting_down = True
        assert "process is shutting down" not in w.ask("/readyz")[1]
    assert [r.getMessage() for r in caplog.records] == ["readyz check failed: shutdown: process is shutting down"]


def test_unknown_excluded_checks_are_logged(world, caplog):
    """Whether or not the answer says so, which without ``verbose`` is only "ok"."""
    w = world()
    with caplog.at_level(logging.WARNING, "kas.health"):
        assert w.ask("/readyz", "exclude=ping") == (200, "ok") and caplog.records == []
        assert w.ask("/readyz", "exclude=nope&exclude=a%0Ab&exclude=ping") == (200, "ok")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == r'cannot exclude some health checks, no health checks are installed matching "a\nb","nope"'


def test_log_lines_about_unknown_excluded_checks_are_rate_limited(world, caplog):
    """Any client, even an anonymous one, can cause only a few lines of bounded length per second."""
    w = world()
    with caplog.at_level(logging.WARNING, "kas.health"):
        for _ in range(2):
            assert w.ask("/livez", f"exclude={'n' * 5000}") == (200, "ok")
        assert len(caplog.records) == 2 and all(record.getMessage().endswith("... (5002 characters)") for record in caplog.records)
        w.server.health._told.one = lambda now: False
        w.ask("/livez", "exclude=nope")
    assert len(caplog.records) == 2


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in NAMES[group]])
def test_each_check_fails_with_its_subject(world, group, name):
    without, breaks = BREAKS[name]
    w = world(without)
    if breaks is not None:
        assert w.ask(f"/{group}/{name}") == (200, "ok")
        breaks(w)
    assert name in w.failing(group)
    assert w.ask(f"/{group}/{name}")[0] == 500
    status, body = w.ask(f"/{group}")
    assert status == 500 and f"[-]{name} failed: reason withheld\n" in body and body.endswith(f"{group} check failed\n")
    assert f"[+]{name} excluded: ok" in w.ask(f"/{group}", f"verbose&exclude={name}")[1]


def test_every_loop_of_the_server_has_a_check(world):
    """Whichever crashed; the loops of ``--controllers`` belong to a controller manager, whose health is not reported here."""
    from kas.controllers import ALWAYS

    assert set(LOOPS) == set(ALWAYS)
    w = world()
    for controller, hook in LOOPS.items():
        crash(controller)(w)
        assert w.failing("livez") == with_parts(hook)
        w.server.hooks.running(controller)
    crash("crd-finalizer")(w)
    w.server.hooks.running("crd-conditions-controller")
    assert w.failing("livez") == with_parts(LOOPS["crd-finalizer"]), "one loop's start says nothing about another"


def test_a_write_of_another_worker_does_not_affect_readiness(world, monkeypatch):
    w = world()
    w.store.commit_now(Op("/registry/a", build_record(b"{}", b"")))
    assert w.store.hub.revision < w.shared.memory.revision, "the loop has not been told yet"
    assert w.ask("/readyz") == (200, "ok")
    w.store.commit_now(Op("/registry/b", build_record(b"{}", b"")))
    monkeypatch.setattr(w.store.hub, "catch_up", lambda: None)
    assert w.failing("readyz") == {"informer-sync"}


def test_an_informer_that_missed_an_event_affects_readiness(world, monkeypatch):
    monkeypatch.setattr("kas.store.hub.AGAIN_S", 0.0)
    monkeypatch.setattr("kas.store.hub.RESTS", 0)
    w = world()
    missed = [True]

    def reset() -> None:
        if missed:
            raise ValueError("cannot be opened")

    w.store.listen("/registry/a/", lambda events: 1 // 0, reset)
    w.store.commit_now(Op("/registry/a/a", build_record(b"{}", b"")))
    assert w.failing("readyz") == {"informer-sync"} and w.failing("livez") == set()
    missed.clear()
    w.store.commit_now(Op("/registry/b", build_record(b"{}", b"")))
    assert w.ask("/readyz") == (200, "ok")


def test_informers_of_another_cluster_affect_readiness(world):
    w = world()
    assert w.failing("readyz") == set()
    w.server._other_hubs.append(SimpleNamespace(failing=1, catch_up=lambda: None))
    assert w.failing("readyz") == {"informer-sync"}


def test_a_loop_that_waits_for_the_store_is_healthy(world, caplog):
    """The store's own check fails meanwhile."""
    w = world()
    crash("bootstrap-controller", Unavailable("etcdserver: no server can be reached"))(w)
    assert w.failing("livez") == set()
    assert [r.getMessage() for r in caplog.records] == ["controller bootstrap-controller waits: etcdserver: no server can be reached"]


def test_failing_periodic_work_has_a_check(world):
    """Under the name of the work, until it succeeds; a store that accepts no writes does not fail it."""
    w = world()
    assert set(WORK) <= {name for name, _, _ in w.runner._periodic}
    for work, hook in WORK.items():
        stick(work, RuntimeError("bug"))(w)
        assert w.failing("livez") == {hook} and w.ask(f"/livez/{hook}") == (500, "internal server error: RuntimeError: bug\n")
        stick(work, Unavailable("etcdserver: no server can be reached"))(w)
        assert w.failing("livez") == set()
        stick(work, RuntimeError("bug"))(w)
        stick(work)(w)
        assert w.failing("livez") == set()
    stick("legacy token use", RuntimeError("bug"))(w)
    assert w.failing("livez") == set(), "who uses a token of a Secret that cannot be written does not end the server"


def test_work_that_flags_disable_has_no_check(world, tmp_path):
    w = world(enable_priority_and_fairness=False)
    (fairness,) = FAIRNESS_UPKEEP.values()
    assert w.ask(f"/readyz/{fairness}")[0] == w.ask(f"/readyz/{PROXY_CERTIFICATE}")[0] == 404
    assert "flow control" not in {name for name, _, _ in w.runner._periodic}
    consumer = "priority-and-fairness-config-consumer"
    assert w.ask(f"/readyz/{LOOPS[consumer]}")[0] == 404 and consumer not in {c.name for c in w.server.controllers()}
    raw = SimpleNamespace(
        enable_priority_and_fairness=True, encryption_provider_config="x", encryption_provider_config_automatic_reload=False
    )
    assert healthchecks.upkeep(raw) == WORK
    raw.encryption_provider_config_automatic_reload = True
    hook = "poststarthook/start-encryption-provider-config-automatic-reload"
    assert healthchecks.upkeep(raw) == {**WORK, "encryption configuration": hook}


def test_loops_that_publish_the_servers_address_have_checks(tmp_path):
    """On etcd alone: the endpoints of the kubernetes Service belong to the bootstrap controller, as upstream."""
    from kas.controllers.masterleases import MasterLeases
    from kas.controllers.peerleases import PeerLease
    from kas.observe.hooks import Hooks

    alone = healthchecks.loops(list(LOOPS), (), False, False)
    assert alone == LOOPS
    hooks = Hooks((), healthchecks.loops(list(LOOPS), (), True, True), tmp_path / "hooks.json")
    hooks.begin()
    hooks.lead()
    peers = "poststarthook/peer-endpoint-reconciler-controller"
    assert hooks.why(peers) == hooks.why(LOOPS["bootstrap-controller"]) == ""
    hooks.failed(MasterLeases.name, "bug")
    assert (hooks.why(peers), hooks.why(LOOPS["bootstrap-controller"])) == ("", "bug")
    hooks.failed(PeerLease.name, "bug, too")
    assert hooks.why(peers) == "bug, too"


def test_an_unusable_certificate_for_aggregated_servers_is_reported(world, tmp_path):
    """The previous one stays in use, so the server need not be restarted."""
    pair = pki.issue([("CN", "proxy")])
    cert, key = tmp_path / "proxy.crt", tmp_path / "proxy.key"
    cert.write_bytes(pair.pem)
    key.write_bytes(pair.key_pem)
    w = world(proxy_client_cert_file=str(cert), proxy_client_key_file=str(key))
    look = lambda: setattr(w.server.aggregator.certificate, "_next_look", 0.0)  # noqa: E731
    assert w.ask(f"/readyz/{PROXY_CERTIFICATE}") == (200, "ok")
    cert.write_bytes(b"half")
    look()
    assert w.failing("readyz") == w.failing("healthz") == {PROXY_CERTIFICATE}
    assert w.failing("livez") == set() and w.ask(f"/livez/{PROXY_CERTIFICATE}")[0] == 404
    cert.write_bytes(pair.pem)
    look()
    assert w.failing("readyz") == set()


def test_loops_need_a_runner(world):
    w = world("runner")
    assert w.failing("readyz") == with_parts(*LOOPS.values()) | {*WORK.values()}


def test_a_loop_whose_gate_is_off_has_no_check(world):
    """Its path is not served, and not in the index."""
    leases = {LOOPS[name] for name in ("kube-apiserver-identity-lease-controller", "kube-apiserver-identity-lease-gc")}
    w = world(feature_gates={"": ["APIServerIdentity=false", "UnknownVersionInteroperabilityProxy=false"]})
    assert {c.name for c in w.server.controllers()} & set(LOOPS) == {name for name in LOOPS if LOOPS[name] not in leases}
    for group in GROUPS:
        assert set(w.server.checks.paths()[group]) == set(NAMES[group]) - leases
        assert all(w.ask(f"/{group}/{name}")[0] == 404 for name in leases)
    index = json.loads(w.ask("/")[1])["paths"]
    assert "/readyz/poststarthook/bootstrap-controller" in index and not any("identity-lease" in path for path in index)


def test_all_workers_report_the_leaders_checks(world, tmp_path):
    from kas.observe.hooks import Hooks

    w = world()
    other = Hooks([], LOOPS, tmp_path / "hooks.json")
    other.begin()
    hook = "poststarthook/bootstrap-controller"
    assert other.why(hook) == ""
    crash("bootstrap-controller")(w)
    assert other.why(hook) == w.server.hooks.why(hook) == "RuntimeError: bug"
    w.server.hooks.running("bootstrap-controller")
    assert other.why(hook) == w.server.hooks.why(hook) == ""


def test_slis_match_the_checks(world):
    from prometheus_client.parser import text_string_to_metric_families

    def read(w: World) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str, str], float]]:
        families = {f.name: f.samples for f in text_string_to_metric_families(w.ask("/metrics/slis")[1])}
        now = {(s.labels["type"], s.labels["name"]): s.value for s in families["kubernetes_healthcheck"]}
        total = {(s.labels["type"], s.labels["name"], s.labels["status"]): s.value for s in families.get("kubernetes_healthchecks", [])}
        return now, total

    w = world()
    w.ask("/livez")
    w.ask("/livez/etcd")
    now, total = read(w)
    assert now == {(group, name): 1.0 for group in GROUPS for name in NAMES[group]}
    assert total["livez", "etcd", "success"] == 2 and total["livez", "ping", "success"] == 1
    w.server.shutting_down = True
    w.ask("/readyz")
    now, total = read(w)
    assert now["readyz", "shutdown"] == 0 and total["readyz", "shutdown", "error"] == 1 and now["readyz", "etcd"] == 1


def test_a_blocked_loop_is_detected():
    from kas.observe.heartbeat import Heartbeat

    now = [0.0]
    beat = Heartbeat(lambda: now[0])
    loop = asyncio.new_event_loop()
    beat.start(loop)
    assert beat.why() == ""
    now[0] = 31.0
    assert beat.why() == "no timer has run for 31 s"
    loop.close()


def test_start_steps_may_be_unfinished_during_the_grace_period(world):
    w = world("derived", livez_grace_period=3600.0)
    assert w.failing("livez") == set() and w.failing("healthz")
    assert w.failing("readyz") > w.failing("healthz")
    w = world("derived", livez_grace_period=1e-9)
    assert w.failing("livez") == w.failing("healthz") != set()


def test_readiness_once_reached_is_remembered(world):
    w = world("derived")
    assert not w.server.health.been_ready()
    w.server.load_derived()
    assert w.server.health.been_ready()
    w.server.shutting_down = True
    assert w.failing("readyz") == {"shutdown"} and w.server.health.been_ready()


def answer(w: World, path: str) -> int:
    """Returns the status that the whole chain answers the administrator with."""
    return w.server.chain(Request("GET", path, "", [(b"authorization", f"Bearer {w.token}".encode())])).status


def test_requests_before_readiness_or_after_shutdown_are_refused_as_flags_say(world):
    w = world("derived", send_retry_after_while_not_ready_once=True, shutdown_send_retry_after=False)
    assert (answer(w, "/version"), answer(w, "/healthz/ping")) == (429, 200)
    w.server.load_derived()
    assert answer(w, "/version") == 200
    w.server.shutting_down = True  # not refused as long as it serves
    assert answer(w, "/version") == 200
    w.server.not_accepting = True
    assert (answer(w, "/version"), answer(w, "/readyz/ping")) == (503, 200)
