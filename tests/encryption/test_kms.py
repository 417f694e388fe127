"""The KMS v2 provider with a plug-in behind a Unix socket: working, down, slow, with a wrong key, with huge answers."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kas.encryption.ciphers import SealError
from kas.encryption.kms import keys, messages, plugins
from kas.encryption.kms.client import KMSClient
from kas.encryption.kms.plugins import KMSPlugins
from kas.encryption.kms.v2 import SERVICE, WRITE_MAX_S, KMSv2
from kas.encryption.observed import MAX_KEYS, Observed, key_id_hash
from kas.observe.metrics import Registry
from tests.controllers.waiting import until
from tests.security.kms import Plugin

PLACE = b"/registry/secrets/ns/a"


@pytest.fixture
def plugin(tmp_path):
    with Plugin(tmp_path / "kms.sock") as p:
        yield p


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def made(plugin):
    """Creates providers of the plug-in; they are closed at the end."""
    out = []

    def make(timeout_s: float = 60.0, **more) -> KMSv2:
        out.append(KMSv2(KMSClient(plugin.target, timeout_s, SERVICE), **more))
        return out[-1]

    yield make
    for provider in out:
        provider.close()


def test_many_writes_call_the_plugin_once_and_another_server_can_read(plugin, made):
    kms, other = made(), made()
    assert kms.check() == "" and other.check() == ""
    values = [kms.seal(b"plain %d" % i, PLACE) for i in range(50)]
    assert [kms.open(v, PLACE) for v in values] == [(b"plain %d" % i, False) for i in range(50)]
    assert plugin.asked["Encrypt"] == 2 and "Decrypt" not in plugin.asked
    assert [other.open(v, PLACE)[0] for v in values] == [b"plain %d" % i for i in range(50)]
    assert plugin.asked["Decrypt"] == 1
    with pytest.raises(SealError, match="cipher: message authentication failed"):
        other.open(values[0], PLACE + b"b")


def test_repeated_slashes_count_as_one(plugin):
    """As in any path: ``unix:////run/kms.sock`` does not contain a host."""
    kms = KMSv2(KMSClient(plugin.target.replace("unix:///", "unix:////"), 60.0, SERVICE))
    assert kms.check() == ""
    kms.close()


def test_a_new_key_makes_old_values_stale(plugin, made):
    kms = made()
    kms.check()
    before = kms.seal(b"plain", PLACE)
    plugin.key_id = "key-2"
    assert kms.check() == ""
    assert kms.open(before, PLACE) == (b"plain", True)
    assert kms.open(kms.seal(b"plain", PLACE), PLACE) == (b"plain", False)
    assert messages.read_stored(kms.seal(b"plain", PLACE))[1].key_id == "key-2"


def test_without_the_plugins_status_writes_fail_after_a_while(plugin, made):
    clock = Clock()
    kms = made(clock=clock)
    with pytest.raises(SealError, match="got unexpected nil transformer"):
        kms.seal(b"plain", PLACE)
    kms.check()
    sealed = kms.seal(b"plain", PLACE)
    plugin.stop()
    assert "rpc error: code = Unavailable" in kms.check()
    kms.seal(b"plain", PLACE)  # it may be back in a moment
    clock.now += WRITE_MAX_S + 1
    with pytest.raises(SealError, match=r"encrypted DEK source with keyID hash .* expired"):
        kms.seal(b"plain", PLACE)
    assert kms.open(sealed, PLACE) == (b"plain", False)  # cached keys are used


def test_a_plugin_that_comes_back_is_used(plugin, made):
    kms = made(name="plug")
    plugin.stop()
    assert kms.check() == f"failed to perform status section of the healthz check for KMS Provider plug, error: {kms.problem}"
    assert kms.problem.startswith("rpc error: code = Unavailable")
    plugin.start()
    until = time.monotonic() + 60
    while kms.check():
        assert time.monotonic() < until
        time.sleep(0.1)
    assert kms.open(kms.seal(b"plain", PLACE), PLACE) == (b"plain", False)


@pytest.mark.parametrize("change, text", [
    ({"key_id": ""}, 'got invalid KMSv2 KeyID hash "": keyID is empty'),
    ({"healthz": "", "status_version": "v1", "key_id": ""},
     '[got unexpected healthz status: , expected KMSv2 API version v2, got v1, got invalid KMSv2 KeyID hash "": keyID is empty]'),
    ({"key_id": "k" * 1025}, "keyID is 1025 bytes, which exceeds the max size of 1024"),
    ({"encrypts_with": "another"}, "got unexpected keyID hash"),
    ({"annotation": b"x" * 33_000}, "exceeds the max size of 32768"),
    ({"annotation": b"x" * 300_000}, "rpc error: code = ResourceExhausted"),
])  # fmt: skip
def test_answers_that_are_refused(plugin, made, change, text):
    for name, value in change.items():
        setattr(plugin, name, value)
    kms = made()
    assert text in kms.check()
    assert text in kms.problem
    with pytest.raises(SealError):
        kms.seal(b"plain", PLACE)


def test_metrics_of_keys(plugin, made):
    metrics, observed = Registry(), Observed()
    observed.attach(metrics, "me")
    kms = made(name="plug", observed=observed)
    ids = [f"key-{i}" for i in range(MAX_KEYS + 2)]
    for plugin.key_id in ids:
        assert kms.check() == ""
        kms.seal(b"plain", PLACE)
    first = kms.seal(b"plain", PLACE)
    kms.open(first, PLACE)
    assert metrics.metrics["apiserver_envelope_encryption_dek_source_cache_size"].values == {("plug",): len(ids)}
    for plugin.key_id in ("", "", "k" * 1025):
        assert kms.check()
    told = {name.removeprefix("apiserver_envelope_encryption_"): m.values for name, m in metrics.metrics.items()}
    uses = [(kind, provider, of, n) for (kind, provider, of, _), n in told["key_id_hash_total"].items()]
    assert uses[-2:] == [("to_storage", "plug", key_id_hash(ids[-1]), 2), ("from_storage", "plug", key_id_hash(ids[-1]), 1)]
    assert [of for _, _, of, _ in uses[:-1]] == [key_id_hash(i) for i in ids[-MAX_KEYS + 1 :]]
    assert set(told["key_id_hash_total"]) == set(told["key_id_hash_last_timestamp_seconds"])
    assert [of for _, of, _ in told["key_id_hash_status_last_timestamp_seconds"]] == [key_id_hash(i) for i in ids[-MAX_KEYS:]]
    assert told["invalid_key_id_from_status_total"] == {("plug", "empty"): 2, ("plug", "too_long"): 1}


@pytest.mark.parametrize("change, text", [
    ({"healthz": "sick"}, "got unexpected healthz status: sick"),
    ({"status_version": "v3"}, "expected KMSv2 API version v2, got v3"),
    ({"status_version": "v2beta1"},
     "KMSv2 API version should not change after the initial status response version v2, got v2beta1"),
])  # fmt: skip
@pytest.mark.parametrize("key_id", ["key-1", "key-2"])
def test_an_unhealthy_plugin_still_reports_its_key(plugin, made, change, text, key_id):
    clock = Clock()
    kms = made(clock=clock, name="plug")
    assert kms.check() == ""
    for name, value in {**change, "key_id": key_id}.items():
        setattr(plugin, name, value)
    clock.now += WRITE_MAX_S + 1
    assert kms.check() == f"kmsv2 Provider plug is not healthy, error: {text}"
    assert messages.read_stored(kms.seal(b"plain", PLACE))[1].key_id == key_id


def test_a_slow_plugin_takes_its_timeout_and_no_more(plugin, made):
    kms = made(timeout_s=0.2)
    plugin.hold()
    assert "rpc error: code = DeadlineExceeded" in kms.check()


def test_requests_for_one_key_share_a_call_and_a_refusal_is_cached(plugin, made):
    writer, reader = made(), made()
    writer.check()
    sealed = writer.seal(b"plain", PLACE)
    plugin.hold()
    got = []
    threads = [threading.Thread(target=lambda: got.append(reader.open(sealed, PLACE))) for _ in range(5)]
    for t in threads:
        t.start()
    plugin.release()
    for t in threads:
        t.join(60)
    assert got == [(b"plain", False)] * 5 and plugin.asked["Decrypt"] == 1
    data, source = messages.read_stored(sealed)
    foreign = messages.stored(data, source._replace(sealed=b"x" * 60))
    asked = plugin.asked["Decrypt"]
    for _ in range(2):
        with pytest.raises(SealError, match="failed to decrypt DEK, error: rpc error: code = InvalidArgument desc = cannot decrypt"):
            reader.open(foreign, PLACE)
    assert plugin.asked["Decrypt"] == asked + 1


def test_the_loop_waits_only_a_moment(plugin, made, monkeypatch):
    monkeypatch.setattr(keys, "LOOP_WAIT_S", 0.05)
    writer, reader = made(), made()
    writer.check()
    sealed = writer.seal(b"plain", PLACE)
    plugin.hold()

    async def read() -> None:
        with pytest.raises(SealError, match="the plug-in has not answered yet"):
            reader.open(sealed, PLACE)
        plugin.release()
        assert await asyncio.to_thread(reader.open, sealed, PLACE) == (b"plain", False)
        assert reader.open(sealed, PLACE) == (b"plain", False)

    asyncio.run(read())


@pytest.mark.parametrize("on_loop", [True, False])
def test_urgent_requests_wait_once_for_a_hanging_plugin(plugin, made, monkeypatch, on_loop):
    """Not for each key: with many of them the loop, or the replica of an etcd, would be blocked."""
    refused, sealed = [], []
    writers, reader = [made() for _ in range(3)], made()
    for writer in writers:
        writer.check()
        sealed.append(writer.seal(b"plain", PLACE))
    plugin.hold()
    monkeypatch.setattr(keys, "LOOP_WAIT_S", 0.05)

    def read_all() -> None:
        for value in sealed:
            with pytest.raises(SealError, match="the plug-in has not answered yet"):
                reader.open(value, PLACE)
            monkeypatch.setattr(keys, "LOOP_WAIT_S", None)  # for ever
            refused.append(value)

    async def on_the_loop() -> None:
        read_all()

    def in_a_hurry() -> None:
        keys.use_short_timeouts()
        read_all()

    thread = threading.Thread(target=lambda: asyncio.run(on_the_loop()) if on_loop else in_a_hurry(), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and refused == sealed
    plugin.release()
    assert [reader.open(value, PLACE)[0] for value in sealed] == [b"plain"] * 3


def test_workers_notify_one_another_of_new_keys(plugin, tmp_path, monkeypatch):
    config = {"apiVersion": "v2", "name": "k", "endpoint": plugin.target, "timeout": 60 * 10**9}
    a, b = KMSPlugins(tmp_path / "told", "0"), KMSPlugins(tmp_path / "told", "1")
    try:
        one, two = a.provider(config), b.provider(config)
        assert a.check_all() == ""
        b._look()
        sealed = one.seal(b"plain", PLACE)
        asked = dict(plugin.asked)
        assert two.open(sealed, PLACE)[0] == b"plain"
        assert plugin.asked == asked
        for file in (tmp_path / "told").iterdir():
            assert b"plain" not in file.read_bytes()
    finally:
        a.close()
        b.close()


def test_a_key_that_cannot_be_shared_is_not_used_and_is_unhealthy(plugin, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "LOOK_S", 0.01)
    monkeypatch.setattr(plugins, "HEALTHY_S", 0.0)
    monkeypatch.setattr(plugins, "UNHEALTHY_S", 0.0)
    monkeypatch.setattr(plugins, "SPREAD_S", 0.0)
    told = tmp_path / "told"
    own = KMSPlugins(told)
    try:
        kms = own.provider({"apiVersion": "v2", "name": "k", "endpoint": plugin.target, "timeout": 60 * 10**9})
        assert own.check_all() == ""
        before = kms._state.source
        told.rename(tmp_path / "away")
        told.write_text("no directory")
        plugin.key_id = "next"
        own.start()
        until(lambda: "FileExistsError" in kms.problem)
        assert kms._state.source == before
        told.unlink()
        until(lambda: kms.problem == "" and kms._state.source.key_id == "next")  # it was called nevertheless
    finally:
        own.close()


def test_the_number_of_a_workers_files_is_bounded(plugin, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "MAX_OWN", 3)
    (tmp_path / "told").mkdir()
    other = tmp_path / "told" / "other.0.1"
    other.touch()
    own = KMSPlugins(tmp_path / "told")
    sources = [messages.DEKSource(b"sealed", str(i)) for i in range(9)]
    for source in sources:
        own._tell("k", source)
    left = sorted(p.name.split(".")[1] for p in other.parent.iterdir() if p != other)
    assert left == sorted(s.digest().hex()[:16] for s in sources[-3:])


def test_all_waiters_for_a_key_get_its_error():
    def ask(source, timeout_s):
        raise ValueError("Cannot invoke RPC on closed channel!")

    opened = keys.Opened(ask)
    for _ in range(2):
        with pytest.raises(SealError, match="failed to decrypt DEK, error: Cannot invoke"):
            opened.get(messages.DEKSource(b"x", "k"))
    assert not opened._asked
    opened.close()


@pytest.mark.parametrize("stored, text", [
    (b"\0", "proto: cannot parse invalid wire-format data"),
    (b"", "encrypted data is empty"),
    (messages.stored(b"d", messages.DEKSource(b"", "k")), "encrypted DEK source is empty"),
    (messages.stored(b"d", messages.DEKSource(b"x" * 1025, "k")), "encrypted DEK source is 1025 bytes, which exceeds the max size of 1024"),
    (messages.stored(b"d", messages.DEKSource(b"x", "")), "failed to validate key id: keyID is empty"),
    (messages.stored(b"d", messages.DEKSource(b"x", "k", type=7)), "unknown encryptedDEKSourceType: 7"),
    (messages.stored(b"d", messages.DEKSource(b"x", "k", (("no-domain", b""),))), "failed to validate annotations"),
])  # fmt: skip
def test_stored_messages_that_are_refused(made, stored, text):
    with pytest.raises(SealError, match=text):
        made().open(stored, PLACE)


def test_a_message_round_trips():
    source = messages.DEKSource(b"sealed", "key-1", (("a.example.com", b"1"), ("b.example.com", b"")))
    assert messages.read_stored(messages.stored(b"data", source)) == (b"data", source)


LONG = ".".join(letter * 63 for letter in "abc")


@pytest.mark.parametrize("name", ["a.com", "dev.k8s.io.", "10.0.0.1", f"{'a' * 63}.k8s.io", f"{LONG}.{'d' * 54}.k8s.io"])
def test_names_of_annotations(name):
    messages.DEKSource(b"x", "k", ((name, b"bar"),)).check()


@pytest.mark.parametrize("annotations, why", [
    ((("@", b""),), 'annotations: Invalid value: "@": a lowercase RFC 1123 subdomain must consist of '),
    ((("com", b""),), 'annotations: Invalid value: "com": should be a domain with at least two segments separated by dots'),
    (((f"{'a' * 64}.k8s.io", b""),), f'annotations: Invalid value: "{"a" * 64}": must be no more than 63 characters'),
    (((f"{LONG}.{'d' * 55}.k8s.io", b""),), f'annotations: Invalid value: "{LONG}.{"d" * 55}.k8s.io": must be no more than 253 characters'),
    ((("a.com", b"a" * 31 * 1024), ("b.com", b"a" * 1024)), "total size of annotations is 32778, which exceeds the max size of 32768"),
    ((("com", b""), ("a.com", b"a" * 32768)),
     '[annotations: Invalid value: "com": should be a domain with at least two segments separated by dots, total size of '),
])  # fmt: skip
def test_annotations_that_are_refused(annotations, why):
    """Upstream's table (``kmsv2/envelope_test.go``)."""
    with pytest.raises(SealError) as e:
        messages.DEKSource(b"x", "k", annotations).check()
    assert str(e.value).startswith(f"failed to validate annotations: {why}")
