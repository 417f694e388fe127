"""Encrypted values in etcd: in kube-apiserver's format there, in no file of a server, and read by every server with the keys."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kas.encryption import providers
from kas.encryption.kms.client import KMSClient
from kas.encryption.kms.v2 import SERVICE, KMSv2
from kas.encryption.observed import Observed
from kas.storage.migrate import main as migration
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import GRANT, PUT
from kas.store.etcd.client import Client as EtcdClient
from kas.store.etcd.layout import Keys
from kas.store.etcd.sealing import Sealing
from kas.testing.server import KasServer
from kas.types.scheme import open_envelope
from tests.contract.store_suite import draft
from tests.encryption.test_server import CORE, SOON, Client, eventually, key, write
from tests.etcd import Etcd
from tests.security.kms import Plugin
from tests.store.test_etcd_store import Plain

SECRET = "/registry/secrets/default/"
AUTO = "--encryption-provider-config-automatic-reload"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def start(etcd: Etcd, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    running: list[KasServer] = []

    def begin(*flags: str, workers: int = 1) -> Client:
        common = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--controllers=none", "--advertise-address=127.0.0.1")
        server = KasServer(tmp_path / f"server-{len(running)}", *common, *flags, workers=workers, prefix=SOON)
        running.append(server)
        return Client(server.start())

    yield begin
    for server in running:
        server.stop()


def gcm(*keys: dict[str, str]) -> dict:
    return {"aesgcm": {"keys": list(keys)}}


def sealed(plain: bytes, at: str, name: str, secret: bytes) -> bytes:
    """Encrypts as any other server would."""
    return f"k8s:enc:aesgcm:v1:{name}:".encode() + b"n" * 12 + AESGCM(secret).encrypt(b"n" * 12, plain, at.encode())


def opened(value: bytes, at: str, name: str, secret: bytes) -> bytes:
    """Decrypts as any other server would."""
    prefix = f"k8s:enc:aesgcm:v1:{name}:".encode()
    assert value.startswith(prefix), value[:60]
    nonce, rest = value[len(prefix) :][:12], value[len(prefix) + 12 :]
    return AESGCM(secret).decrypt(nonce, rest, at.encode())


def secret(name: str, data: str) -> bytes:
    """Returns a secret as JSON, in which kube-apiserver stores it if configured so."""
    meta = f'{{"name":"{name}","namespace":"default","creationTimestamp":"2026-01-01T00:00:00Z"}}'
    return f'{{"kind":"Secret","apiVersion":"v1","metadata":{meta},"data":{{"x":"{data}"}}}}'.encode()


def put(etcd: Etcd, at: str, value: bytes) -> None:
    client = EtcdClient(etcd.config)
    client.call(PUT, pb.PutRequest(key=at.encode(), value=value))
    client.close()


def names(client: Client, query: str = "") -> list[str]:
    return [item["metadata"]["name"] for item in client("GET", f"{CORE}/secrets?{query}")["items"]]


def test_values_have_upstreams_format_and_no_file_shows_them(start, etcd: Etcd, tmp_path: Path) -> None:
    config = write(tmp_path / "e.yaml", (["secrets", "configmaps"], [gcm(key("key1"))]))
    one, two = start(config, workers=2), start(config)
    marks = [f"needle{i}z" for i in range(5)]
    one.secret("a", marks[0], labels={marks[1]: marks[2]})
    assert names(two, f"labelSelector={marks[1]}%3D{marks[2]}") == ["a"]
    two("PATCH", f"{CORE}/secrets/a", {"stringData": {marks[3]: "x"}})
    one("POST", f"{CORE}/configmaps", {"metadata": {"name": "m"}, "data": {"plain": "x" * 70_000 + marks[4]}})
    assert set(one("GET", f"{CORE}/secrets/a")["data"]) == {"k", marks[3]}
    assert one("GET", f"{CORE}/secrets/a") == two("GET", f"{CORE}/secrets/a")

    api_version, kind, message, _ = open_envelope(opened(etcd.value(SECRET + "a"), SECRET + "a", "key1", b"k" * 32))
    assert (api_version, kind) == ("v1", "Secret") and marks[0].encode() in message
    # Values that another server encrypted are read here.
    text = secret("b", "eQ==")
    put(etcd, SECRET + "b", sealed(text, SECRET + "b", "key1", b"k" * 32))
    assert one("GET", f"{CORE}/secrets/b")["data"] == two("GET", f"{CORE}/secrets/b")["data"] == {"x": "eQ=="}
    # Under another key a value cannot be decrypted, and the error says so.
    put(etcd, SECRET + "c", etcd.value(SECRET + "b"))
    assert one("GET", f"{CORE}/secrets/c", wanted=(500,))["message"].startswith("Internal error occurred")
    one("DELETE", f"{CORE}/secrets/b")

    for client in (one, two):
        client.server.stop()
        data = b"".join(p.read_bytes() for p in sorted(client.server.data_dir.rglob("*")) if p.is_file())
        for mark in marks:
            assert mark.encode() not in data and base64.b64encode(mark.encode())[:8] not in data


def test_a_new_key_applies_and_updates_use_it(start, etcd: Etcd, tmp_path: Path) -> None:
    path, old, new = tmp_path / "e.yaml", key("old", b"o"), key("new", b"n")
    client = start(write(path, (["secrets"], [{"identity": {}}, gcm(old)])), AUTO)
    client.secret("plain", "1")
    assert etcd.value(SECRET + "plain")[:4] == b"k8s\0"

    def sealed_anew(prefix: bytes) -> bool:
        found = client("GET", f"{CORE}/secrets/plain")
        client("PUT", f"{CORE}/secrets/plain", found)  # changes nothing in the object
        return etcd.value(SECRET + "plain").startswith(prefix)

    write(path, (["secrets"], [gcm(old), {"identity": {}}]))
    eventually(lambda: sealed_anew(b"k8s:enc:aesgcm:v1:old:"))
    write(path, (["secrets"], [gcm(new, old), {"identity": {}}]))
    eventually(lambda: sealed_anew(b"k8s:enc:aesgcm:v1:new:"))

    def left_alone() -> bool:
        before = client("GET", f"{CORE}/secrets/plain")["metadata"]["resourceVersion"]
        assert sealed_anew(b"k8s:enc:aesgcm:v1:new:")
        return client("GET", f"{CORE}/secrets/plain")["metadata"]["resourceVersion"] == before

    eventually(left_alone)  # it is encrypted with the new key, once all processes have read the file
    write(path, (["secrets"], [{"identity": {}}, gcm(new)]))
    eventually(lambda: sealed_anew(b"k8s\0"))
    assert names(client) == ["plain"]


def test_migration_writes_values_as_a_server_would(etcd: Etcd, tmp_path: Path, capsys) -> None:
    def migrate(*providers: dict) -> tuple[int, str, str]:
        config = write(tmp_path / "e.yaml", (["secrets"], list(providers)))
        code = migration(["--storage-backend=etcd3", f"--etcd-servers={etcd.url}", config])
        told = capsys.readouterr()
        return code, told.out, told.err

    old, new = key("old", b"o"), key("new", b"n")
    at = SECRET + "sealed"
    put(etcd, at, sealed(secret("sealed", "bmVlZGxl"), at, "old", b"o" * 32))
    put(etcd, SECRET + "plain", secret("plain", "bmVlZGxl"))
    put(etcd, "/registry/acme.io/widgets/w", b'{"kind":"W","apiVersion":"acme.io/v1","metadata":{"name":"w"}}\n')
    put(etcd, "/registry/kas/fence", b"")
    client = EtcdClient(etcd.config)
    lease = client.call(GRANT, pb.LeaseGrantRequest(TTL=600)).ID
    event = b'{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"default","creationTimestamp":"2026-01-01T00:00:00Z"}}'
    client.call(PUT, pb.PutRequest(key=b"/registry/events/default/e", value=event, lease=lease))

    assert migrate(gcm(new, old), {"identity": {}}) == (0, "kas: 3 of 4 objects written again, 0 could not be read\n", "")
    for name in ("sealed", "plain"):
        message = opened(etcd.value(SECRET + name), SECRET + name, "new", b"n" * 32)
        assert open_envelope(message)[:2] == ("v1", "Secret") and b"needle" in message
    (kv,) = client.range(b"/registry/events/").kvs
    assert (kv.value[:4], kv.lease) == (b"k8s\0", lease)
    assert migrate(gcm(new), {"identity": {}})[1].startswith("kas: 0 of 4")
    code, _, told = migrate(gcm(old))
    assert code == 1 and f"unable to transform key {SECRET}plain: no matching key was found for the provided AES transformer" in told
    assert migrate({"identity": {}}, gcm(new))[0] == 0
    assert etcd.value(SECRET + "plain").startswith(b"k8s\0")
    client.close()


def test_values_not_decrypted_on_arrival_apply_once_they_can_be(start, etcd: Etcd, tmp_path: Path) -> None:
    """Rights that another server granted and revoked, under a key that was configured here later."""
    old, new, rbac = key("old", b"o"), key("new", b"n"), "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"

    def use(path: Path, *keys: dict[str, str]) -> str:
        return write(path, (["clusterrolebindings.rbac.authorization.k8s.io"], [gcm(*keys)]))

    one, two = start(use(first, old), AUTO), start(use(second, old), AUTO)

    def bind(name: str) -> dict:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]
        return one("POST", rbac, {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})

    def may(name: str) -> bool:
        attributes = {"namespace": "default", "verb": "get", "resource": "configmaps"}
        body = {"spec": {"user": name, "resourceAttributes": attributes}}
        return two("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"]

    def changed(i: int) -> bool:
        one("PATCH", f"{rbac}/kept", {"metadata": {"labels": {"i": str(i)}}})
        return etcd.value("/registry/clusterrolebindings/kept").startswith(b"k8s:enc:aesgcm:v1:new:")

    for name in ("kept", "cut", "gone"):
        bind(name)
    eventually(lambda: all(map(may, ("kept", "cut", "gone"))))
    use(first, new, old)
    turns = iter(range(10_000))
    eventually(lambda: changed(next(turns)))
    bind("late")
    one("PATCH", f"{rbac}/cut", {"subjects": []})
    one("PATCH", f"{rbac}/gone", {"metadata": {"labels": {"i": "0"}}})
    for name in ("late", "gone"):
        assert two("GET", f"{rbac}/{name}", wanted=(500,))["message"].startswith("Internal error occurred")
    one("DELETE", f"{rbac}/gone")
    two("POST", f"{CORE}/configmaps", {"metadata": {"name": "meanwhile"}})  # it follows, though it cannot decrypt what was deleted
    assert two("GET", f"{rbac}/gone", wanted=(404,))["reason"] == "NotFound"
    assert "[-]informer-sync" in two("GET", "/readyz?verbose", wanted=(500,))
    use(second, new, old)
    eventually(lambda: "subjects" not in two("GET", f"{rbac}/cut", wanted=()))
    eventually(lambda: [may(name) for name in ("kept", "cut", "gone", "late")], [True, False, False, True])
    eventually(lambda: two("GET", "/readyz", wanted=()), "ok")


def test_a_hanging_plugin_delays_only_resources_it_encrypts(start, etcd: Etcd, tmp_path: Path) -> None:
    """A server's replica continues past a write of another server whose key has not been decrypted here."""
    with Plugin(tmp_path / "one.sock") as good, Plugin(tmp_path / "two.sock") as hangs:

        def use(plugin: Plugin) -> str:
            kms = {"apiVersion": "v2", "name": "plug", "endpoint": plugin.target, "timeout": "60s"}
            return write(plugin.socket.with_suffix(".yaml"), (["secrets"], [{"kms": kms}]))

        one, two = start(use(good)), start(use(hangs))
        hangs.hold()
        one.secret("a", "1")
        two("POST", f"{CORE}/configmaps", {"metadata": {"name": "plain"}})
        assert two("GET", f"{CORE}/configmaps/plain") == one("GET", f"{CORE}/configmaps/plain")
        hangs.release()
        eventually(lambda: two("GET", f"{CORE}/secrets/a", wanted=()), one("GET", f"{CORE}/secrets/a"))


def test_a_value_is_stale_by_the_key_of_the_reader_whatever_key_the_replicator_knows(tmp_path: Path) -> None:
    at = "/registry/secrets/default/a"

    def stale(value: bytes, replicator: providers.Sealing, reader: providers.Sealing) -> bool:
        stored = Sealing(lambda _: replicator, Keys()).taken(at, value, Plain()).stored
        transformers = Sealing(lambda _: reader, Keys()).replica(Plain())
        assert transformers is not None
        return transformers(at).open(stored, at.encode())[1]

    with Plugin(tmp_path / "kms.sock") as plugin:
        early, late = (KMSv2(KMSClient(plugin.target, 60.0, SERVICE)) for _ in range(2))
        assert [early.check(), late.check()] == ["", ""]
        new, old = (providers.Sealing(("", "secrets"), [(b"k8s:enc:kms:v2:plug:", kms)], Observed()) for kms in (early, late))
        plain = draft().json
        before = new.seal(plain, at.encode())
        plugin.key_id = "key-2"
        assert early.check() == ""
        after = new.seal(plain, at.encode())
        assert [stale(after, replicator, new) for replicator in (old, new)] == [False, False]
        assert [stale(before, replicator, new) for replicator in (old, new)] == [True, True]
        assert [stale(before, replicator, old) for replicator in (old, new)] == [False, False]
        second = providers.Sealing(("", "secrets"), [(b"k8s:enc:kms:v2:other:", late), (b"k8s:enc:kms:v2:plug:", early)], Observed())
        assert stale(after, new, second)  # it writes with another provider
        early.close()
        late.close()
