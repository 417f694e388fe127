"""Copies between LMDB and etcd: everything arrives, while servers write, and after the copy was killed."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from kas.storage import command, etcdplace, lmdbplace, main
from kas.storage.etcdplace import EtcdPlace
from kas.storage.lmdbplace import LMDBTarget
from kas.storage.places import Refused
from kas.store import Op, compile_matcher
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import COMPACT, PUT, RANGE, TIME_TO_LIVE, TXN, Client
from kas.store.etcd.client import Config as EtcdConfig
from kas.store.etcd.layout import HALF, Keys
from kas.store.lmdb import LMDBStore
from kas.testing.server import KasServer
from kas.types.scheme import decode_protobuf, open_envelope
from tests.conftest import Client as Http
from tests.etcd import Etcd
from tests.storage.places import EVENT, MADE, MAPS, WIDGET, config_map, kas, make_etcd, make_lmdb, objects, opened, put, write
from tests.types.kinds import kind_for


def values(etcd: Etcd, prefix: str) -> dict[str, pb.KeyValue]:
    client = Client(etcd.config)
    try:
        return {kv.key.decode(): kv for kv in client.range((prefix + "/").encode()).kvs}
    finally:
        client.close()


def copy(source: str, target: str, prefix: str = "/registry") -> int:
    return main(["copy", "--from", source, "--to", target, f"--prefix={prefix}"])


def test_from_lmdb_to_etcd_and_back_nothing_is_lost(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    source, cluster, back = make_lmdb(tmp_path / "a"), f"etcd:{etcd.url}", f"lmdb:{tmp_path / 'b'}"
    assert copy(source, cluster, prefix) == 0
    told = capsys.readouterr().out
    assert "27 objects and 1 with a lease as of revision 28; sha256 of both sides " in told and "every client has to list anew" in told
    found = values(etcd, prefix)
    assert sorted(found) == sorted(prefix + key.removeprefix("/registry") for key in (*objects(25), EVENT))
    name, raw = open_envelope(found[f"{prefix}/configmaps/ns/c0003"].value)[1:3]
    client = Client(etcd.config)
    try:
        left = client.call(TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=found[f"{prefix}/events/ns/e"].lease)).TTL
        assert name == "ConfigMap" and raw and 900 < left <= 1050
    finally:
        client.close()

    assert copy(cluster, back, prefix) == 0
    told = capsys.readouterr().out
    first, second = opened(tmp_path / "a"), opened(tmp_path / "b")
    try:
        assert f"the store goes on at revision {second.revision}" in told
        for before, after in zip(first.range("/registry/").records, second.range("/registry/").records, strict=True):
            assert (before.key, before.labels, before.fields, before.version) == (after.key, after.labels, after.fields, after.version)
            one, two = orjson.loads(before.json), orjson.loads(after.json)
            one["metadata"].pop("resourceVersion")
            at = found[prefix + after.key.removeprefix("/registry")]
            assert int(two["metadata"].pop("resourceVersion")) == after.revision == at.mod_revision
            assert (one, after.create_revision) == (two, at.create_revision)
        assert second.leased() == [(EVENT, found[f"{prefix}/events/ns/e"].mod_revision)]
        assert 0 < second.get(EVENT).lease_expiry - time.time() < 1100
        assert second.range(WIDGET[:-1], matcher=compile_matcher((), [("spec.color", "=", "red")])).count == 1
        assert second.compacted_revision == second.revision
    finally:
        first.close()
        second.close()


def test_values_in_etcd_have_no_resource_version(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    """Also of objects that LMDB stores as a message, which has one."""
    with KasServer(tmp_path, "--storage-backend=lmdb", "--unsafe-no-fsync") as server:
        source = f"lmdb:{server.data_dir}"
        done = kas("storage", "copy", "--from", source, "--to", f"etcd:{etcd.url}", f"--prefix={prefix}")  # while it serves
        assert (done.returncode, done.stderr) == (0, "")
        for key, kv in values(etcd, prefix).items():
            if kv.value.startswith(b"k8s\0"):
                api_version, kind, raw, _ = open_envelope(kv.value)
                assert "resourceVersion" not in decode_protobuf(kind_for(api_version, kind).type, raw)["metadata"], key
        before = Http(server)("GET", "/api/v1/namespaces/default")[1]
    assert copy(source, f"etcd:{etcd.url}", prefix) == 0  # later changes
    assert "continued" in capsys.readouterr().out
    flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", f"--etcd-prefix={prefix}", "--advertise-address=127.0.0.1")
    with KasServer(tmp_path, *flags) as server:
        after = Http(server)("GET", "/api/v1/namespaces/default")[1]
        assert before["metadata"].pop("resourceVersion") and after["metadata"].pop("resourceVersion")
        assert after == before
        server.kill()
    assert copy(source, f"etcd:{etcd.url}", prefix) == 1
    assert "was written to since it was copied" in capsys.readouterr().err


KILLED = """
import os, signal, sys
from kas.storage import command, etcdplace, lmdbplace, main
etcdplace.PAGE = lmdbplace.PAGE = 5
etcdplace.MOST_OPS = 5
pages = 0
def shown(self, phase, done, total):
    global pages
    pages += phase == "copying"
    if pages == 3:
        os.kill(os.getpid(), signal.SIGKILL)
command.Shown.__call__ = shown
main(sys.argv[1:])
"""


def killed(*args: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("to", ["lmdb", "etcd"])
def test_a_killed_copy_continues_though_etcd_has_compacted(etcd: Etcd, prefix: str, tmp_path: Path, capsys, to: str) -> None:
    """In the copied part a key changes and one is deleted, after it one is created."""
    with Etcd(tmp_path) as other:
        source = make_etcd(other, prefix)
        target = f"lmdb:{tmp_path / 'a'}" if to == "lmdb" else f"etcd:{etcd.url}"
        killed("copy", "--from", source, "--to", target, f"--prefix={prefix}")
        if to == "lmdb":
            assert not (tmp_path / "a" / "store").exists()  # a server would start with half of the data
        else:
            assert 10 < len(values(etcd, prefix)) < 27
        put(other, prefix, {MAPS + "c0002": config_map("c0002", "new"), MAPS + "c0099": config_map("c0099")})
        client = Client(other.config)
        try:
            gone = f"{prefix}/configmaps/ns/c0001".encode()
            done = client.call(TXN, pb.TxnRequest(success=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=gone))]))
            client.call(COMPACT, pb.CompactionRequest(revision=done.header.revision))
        finally:
            client.close()
        assert copy(source, target, prefix) == 0
        assert "27 objects and 1 with a lease" in (told := capsys.readouterr().out) and "continued" in told
        if to == "etcd":
            keys = values(etcd, prefix)
            assert f"{prefix}/configmaps/ns/c0001" not in keys and f"{prefix}/configmaps/ns/c0099" in keys
            assert keys[f"{prefix}/configmaps/ns/c0002"].value == values(other, prefix)[f"{prefix}/configmaps/ns/c0002"].value
            return
    store = opened(tmp_path / "a")
    try:
        assert store.get(MAPS + "c0001") is None and store.get(MAPS + "c0099") is not None
        assert orjson.loads(store.get(MAPS + "c0002").json)["data"] == {"x": "new"}
    finally:
        store.close()
    assert main(["check", "--from", target]) == 0


def test_a_killed_copy_from_lmdb_continues(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    source, target = make_lmdb(tmp_path / "a"), f"etcd:{etcd.url}"
    killed("copy", "--from", source, "--to", target, f"--prefix={prefix}")
    store = opened(tmp_path / "a")
    write(store, {MAPS + "c0002": config_map("c0002", "new"), MAPS + "c0099": config_map("c0099")})
    store.commit_now(Op(WIDGET, None))
    while not store.compact(store.revision):
        pass
    store.close()
    assert copy(source, target, prefix) == 0
    assert "27 objects and 1 with a lease as of revision 31, continued" in capsys.readouterr().out
    found = values(etcd, prefix)
    assert f"{prefix}/acme.io/widgets/ns/w" not in found and b"new" in found[f"{prefix}/configmaps/ns/c0002"].value


class Killed(BaseException):
    """An exception that no code catches."""


class Fuse:
    """Ends the caller at the ``left``th call of the wrapped functions, before or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self.left, self.after = monkeypatch, 0, False

    def into(self, owner: object, name: str) -> None:
        done = getattr(owner, name)

        def one(*args, **more):
            self.left -= 1
            its = self.left == 0
            if its and not self.after:
                raise Killed
            out = done(*args, **more)
            if its:
                raise Killed
            return out

        self._patch.setattr(owner, name, one)

    def blows(self, at: int, source: str, target: str, prefix: str) -> bool:
        """Whether a copy was ended by it."""
        self.left = at
        try:
            assert copy(source, target, prefix) == 0
        except Killed:
            return True
        finally:
            self.left = 0
        return False


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("to", ["lmdb", "etcd"])
def test_a_copy_continues_wherever_it_was_killed(
    etcd: Etcd, prefix: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch, to: str, after: bool
) -> None:  # fmt: skip
    """A first copy, and one that brings later changes; then the source changes, also in the copied part."""
    for module in (etcdplace, lmdbplace):
        monkeypatch.setattr(module, "PAGE", 4)
    fuse = Fuse(monkeypatch)
    fuse.after = after
    for owner, name in (
        [(EtcdPlace, "_write")] if to == "etcd" else
        [(LMDBStore, "load"), (LMDBTarget, "_take"), (LMDBTarget, "remove"), (LMDBTarget, "complete"), (lmdbplace.os, "replace")]
    ):  # fmt: skip
        fuse.into(owner, name)
    source = make_lmdb(tmp_path / "a", 8)
    blown, fresh = True, True
    for at in itertools.count(1):
        if not blown and not fresh:
            break
        if not blown:  # every place of a first copy was met: now those of a further one
            fresh, at0 = False, at
        target = f"lmdb:{tmp_path / f'{at}'}" if to == "lmdb" else f"etcd:{etcd.url}"
        below = f"{prefix}-{at}"  # another test has the prefix with a number more
        if not fresh:
            assert copy(source, target, below) == 0
            _change(tmp_path / "a", f"{at}x")
        blown = fuse.blows(at if fresh else at - at0 + 1, source, target, below)
        _change(tmp_path / "a", f"{at}y")
        assert copy(source, target, below) == 0, capsys.readouterr().err
    assert at > 10


def test_a_partial_copy_of_changes_is_incomplete(etcd: Etcd, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would show some changes, and not earlier ones."""
    source, target, fuse, client = make_lmdb(tmp_path / "a", 8), f"etcd:{etcd.url}", Fuse(monkeypatch), Client(etcd.config)
    note = pb.RangeRequest(key=Keys(prefix).copied)
    fuse.into(EtcdPlace, "_write")
    try:
        assert copy(source, target, prefix) == 0 and HALF not in client.call(RANGE, note).kvs[0].value
        _change(tmp_path / "a", "since")
        for after in (True, False):  # the first write; then nothing of the next copy
            fuse.after = after
            assert fuse.blows(1, source, target, prefix) and HALF in client.call(RANGE, note).kvs[0].value
        written = client.call(RANGE, pb.RangeRequest(key=f"{prefix}/configmaps/ns/c0005".encode())).kvs[0].mod_revision
        assert copy(source, target, prefix) == 0 and HALF not in client.call(RANGE, note).kvs[0].value
        again = client.call(RANGE, pb.RangeRequest(key=f"{prefix}/configmaps/ns/c0005".encode())).kvs[0].mod_revision
        assert again == written, "what was there is not written again"
    finally:
        client.close()


def test_a_killed_copy_of_nothing_continues(prefix: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_lmdb(tmp_path / "a", 1)
    store = opened(tmp_path / "a")
    for record in store.range("/").records:
        store.commit_now(Op(record.key, None))
    store.close()
    fuse = Fuse(monkeypatch)
    fuse.after = True
    fuse.into(LMDBStore, "apply")
    assert fuse.blows(1, source, f"lmdb:{tmp_path / 'b'}", prefix)
    assert copy(source, f"lmdb:{tmp_path / 'b'}", prefix) == 0, capsys.readouterr().err


def _change(data_dir: Path, name: str) -> None:
    """Creates one object, changes another one, and deletes the one before."""
    store = opened(data_dir)
    try:
        store.commit_now(Op(store.range(MAPS).records[0].key, None))
        write(store, {MAPS + name: config_map(name), MAPS + "c9": config_map("c9", name)})
    finally:
        store.close()


def test_unreadable_objects_are_named_and_left_out(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    source = make_etcd(etcd, prefix, 3)
    client = Client(etcd.config)
    client.call(PUT, pb.PutRequest(key=f"{prefix}/secrets/ns/s".encode(), value=b"k8s:enc:aescbc:v1:k:?"))
    client.close()
    assert copy(source, f"lmdb:{tmp_path / 'a'}", prefix) == 1
    told = capsys.readouterr()
    assert "5 objects and 1 with a lease" in told.out and "kas: /registry/secrets/ns/s is left out: " in told.err
    assert main(["check", "--from", source, f"--prefix={prefix}"]) == 1
    assert capsys.readouterr().out.startswith("/registry/secrets/ns/s: cannot be read: ")


def test_a_target_that_is_not_empty_is_refused(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    one, two = make_lmdb(tmp_path / "a", 3), make_lmdb(tmp_path / "b", 3)
    cluster = make_etcd(etcd, prefix, 3)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine").touch()
    before = values(etcd, prefix)
    for target, why in (
        (two, "holds a store already"), (cluster, f"has keys below {prefix} already"),
        (f"lmdb:{tmp_path / 'c'}", "not a kas data directory"),
    ):  # fmt: skip
        assert copy(one, target, prefix) == 1
        assert why in capsys.readouterr().err
    assert values(etcd, prefix) == before and [p.name for p in (tmp_path / "c").iterdir() if p.name != "lock"] == ["mine"]
    assert copy(one, f"lmdb:{tmp_path / 'd'}") == 0
    assert copy(two, f"lmdb:{tmp_path / 'd'}") == 1
    assert "holds a copy of another source" in capsys.readouterr().err


def test_objects_missing_in_the_target_are_found(etcd: Etcd, prefix: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LMDBTarget.put
    monkeypatch.setattr(LMDBTarget, "put", lambda self, entries, note: honest(self, [e for e in entries if e.key != WIDGET], note))
    assert copy(make_etcd(etcd, prefix, 3), f"lmdb:{tmp_path / 'a'}", prefix) == 1
    told = capsys.readouterr().err
    assert f"{WIDGET} is not the same on both sides" in told and "must not be used" in told
    assert not (tmp_path / "a" / "store").exists()


def test_encrypted_values_are_decrypted_and_encrypted_again(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    secret = {"/registry/secrets/ns/s": orjson.dumps({
        "kind": "Secret", "apiVersion": "v1", "data": {"a": "bmVlZGxl"},
        "metadata": {"name": "s", "namespace": "ns", "creationTimestamp": MADE},
    })}  # fmt: skip
    source = make_lmdb(tmp_path / "a", 1)
    store = opened(tmp_path / "a")
    write(store, secret)
    store.close()
    file = tmp_path / "e.yaml"
    key = {"name": "k", "secret": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}
    file.write_text(orjson.dumps({
        "kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [key]}}, {"identity": {}}]}],
    }).decode())  # fmt: skip
    config = f"--encryption-provider-config={file}"
    for a, b in ((source, f"etcd:{etcd.url}"), (f"etcd:{etcd.url}", f"lmdb:{tmp_path / 'b'}")):
        done = kas("storage", "copy", "--from", a, "--to", b, f"--prefix={prefix}", config)
        assert (done.returncode, done.stderr) == (0, "")
    assert values(etcd, prefix)[f"{prefix}/secrets/ns/s"].value.startswith(b"k8s:enc:aesgcm:v1:k:")
    assert b"bmVlZGxl" not in (tmp_path / "b" / "store" / "data.mdb").read_bytes()
    assert main(["check", "--from", f"lmdb:{tmp_path / 'b'}"]) == 1  # without the configuration
    assert capsys.readouterr().out.startswith("/registry/secrets/ns/s: cannot be opened: ")


def test_each_side_has_its_own_prefix(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    """Also within one cluster, whose revision the copy increases while it reads."""
    first, second, cluster = prefix, f"{prefix}-2", f"etcd:{etcd.url}"
    make_etcd(etcd, first)
    command_line = ["copy", "--from", cluster, "--to", cluster, f"--from-prefix={first}", "--to-prefix", second]
    assert main(command_line) == 0
    before = {key.removeprefix(first): kv.value for key, kv in values(etcd, first).items()}
    assert {key.removeprefix(second): kv.value for key, kv in values(etcd, second).items()} == before and len(before) == 28
    put(etcd, first, {f"{MAPS}later": config_map("later")})
    assert main(command_line) == 0
    assert f"{second}/configmaps/ns/later" in values(etcd, second)
    # ``--prefix`` applies to the side without its own.
    assert main(["copy", "--from", cluster, "--to", f"lmdb:{tmp_path / 'a'}", f"--prefix={first}", f"--from-prefix={second}"]) == 0
    assert main(["copy", "--from", f"lmdb:{tmp_path / 'a'}", "--to", cluster, f"--to-prefix={first}-3"]) == 0
    assert {key.removeprefix(f"{first}-3") for key in values(etcd, f"{first}-3")} == {*before, "/configmaps/ns/later"}
    capsys.readouterr()
    for within in (f"{first}/in", "/"):
        assert main(["copy", "--from", cluster, "--to", cluster, f"--from-prefix={first}", f"--to-prefix={within}"]) == 1
        assert "one of the two prefixes lies within the other, in the same cluster" in capsys.readouterr().err


def test_only_etcd_has_a_prefix(tmp_path: Path) -> None:
    for side, other in (("from", "to"), ("to", "from")):
        done = kas("storage", "copy", f"--{side}=lmdb:{tmp_path}", f"--{other}=etcd:http://127.0.0.1:1", f"--{side}-prefix=/a")
        assert (done.returncode, done.stderr) == (2, f"kas: --{side}-prefix: only etcd has a prefix\n")


def test_values_bound_to_their_key_are_not_copied_to_another_one(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    """They could not be decrypted there; with the configuration they are encrypted again."""
    file = tmp_path / "e.yaml"
    key = {"name": "k", "secret": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}
    file.write_text(orjson.dumps({
        "kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{"resources": ["configmaps"], "providers": [{"aesgcm": {"keys": [key]}}]}],
    }).decode())  # fmt: skip
    sealed, moved, cluster, config = f"{prefix}-sealed", f"{prefix}-moved", f"etcd:{etcd.url}", f"--encryption-provider-config={file}"
    assert main(["copy", "--from", make_lmdb(tmp_path / "a", 1), "--to", cluster, f"--to-prefix={sealed}", config]) == 0
    command_line = ["copy", "--from", cluster, "--to", cluster, f"--from-prefix={sealed}", f"--to-prefix={moved}"]
    capsys.readouterr()
    assert main(command_line) == 1
    assert "/registry/configmaps/ns/c0000 is left out: cannot be opened: it is sealed for its key" in capsys.readouterr().err
    assert main([*command_line[:-1], f"--to-prefix={prefix}-opened", config]) == 0
    found = values(etcd, f"{prefix}-opened")[f"{prefix}-opened/configmaps/ns/c0000"].value
    assert found.startswith(b"k8s:enc:aesgcm:v1:k:") and found != values(etcd, sealed)[f"{sealed}/configmaps/ns/c0000"].value
    assert main(["check", "--from", cluster, f"--prefix={prefix}-opened", config]) == 0


def test_progress_is_shown_on_a_terminal_and_cleared(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with command.progress() as shown:
        shown("copying", 10, 40)
        shown("copying", 11, 40)  # too soon
        shown("catching up", 5, 0)
    told = capsys.readouterr().err
    assert "copying [#######                       ] 10 of 40" in told and "11" not in told and "catching up 5" in told
    assert told.endswith("\r\x1b[K")


def test_errors_on_the_command_line(tmp_path: Path, capsys) -> None:
    for args, why in (
        (["copy", "--from", "nonsense", "--to", f"lmdb:{tmp_path}"], "--from: 'nonsense' is neither lmdb:DIR nor etcd:URL,URL"),
        (["check"], "--from: name a place, lmdb:DIR or etcd:URL,URL"), (["check", "--from"], "flag needs an argument: --from"),
        (["copy", "--from", "lmdb:/x"], "--to: name a place, lmdb:DIR or etcd:URL,URL"),
        (["copy", "--from", "lmdb:/x", "--to=here"], "--to: 'here' is neither lmdb:DIR nor etcd:URL,URL"),
        (["check", "--from=etcd:http://a:1,http://a:65536"], "--from: http://a:65536 names no port between 1 and 65535"),
        (["check", "--from=etcd:http://a:0"], "--from: http://a:0 names no port between 1 and 65535"),
        (["check", "--from=etcd:ftp://a"], "--from: ftp://a is not the URL of a server"),
        (["check", "--from=etcd:http://a:1", "--from-overrides=/events#http://b:x"], "--from-overrides: http://b:x names no port"),
        (["cpy"], "kas: unknown command 'cpy' of kas storage (did you mean copy?); see kas storage --help\n"),
        (["check", "--from", "lmdb:/x", "more"], "unexpected argument more"),
        (["check", "--from=lmdb:/x", "--nonsense"], "unknown flag: --nonsense"),
        (["check", "--form", "lmdb:/x"], "unknown flag: --form (did you mean --from?)"),
        (["check", "--from=lmdb:/x", "--etcd-cafil=y"], "unknown flag: --etcd-cafil (did you mean --etcd-cafile?)"),
    ):  # fmt: skip
        assert main(args) == 2
        assert why in capsys.readouterr().err
    assert main(["check", "--from", f"lmdb:{tmp_path}"]) == 1
    assert "holds no store" in capsys.readouterr().err
    assert main(["copy", "--help"]) == 0 and capsys.readouterr().out.startswith("usage: kas storage copy")
    assert main([]) == 2


def test_objects_under_another_prefix_are_reported(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    source, told = make_etcd(etcd, prefix, 3), f"holds nothing below {prefix}x, but keys elsewhere"
    for asked in (["check"], ["copy", "--to", f"lmdb:{tmp_path / 'a'}"]):
        assert main([*asked, "--from", source, f"--prefix={prefix}x"]) == 1
        assert told in capsys.readouterr().err and not list(tmp_path.iterdir())
    assert main(["migrate", "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", f"--etcd-prefix={prefix}x"]) == 1
    assert told in capsys.readouterr().err
    assert main(["migrate", "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", f"--etcd-prefix={prefix}"]) == 0
    assert "of 6 objects written again" in capsys.readouterr().out


def test_an_empty_source(tmp_path: Path, capsys) -> None:
    with Etcd(tmp_path) as etcd:
        assert main(["check", "--from", f"etcd:{etcd.url}"]) == 0
        assert "0 objects" in capsys.readouterr().err


def test_two_copies_to_one_target_are_refused(etcd: Etcd, prefix: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = EtcdPlace._write

    def raced(self, ops, note):
        client = Client(etcd.config)
        client.call(PUT, pb.PutRequest(key=self._note_key, value=note.to_json()))
        client.close()
        honest(self, ops, note)

    monkeypatch.setattr(EtcdPlace, "_write", raced)
    assert copy(make_lmdb(tmp_path / "a", 3), f"etcd:{etcd.url}", prefix) == 1
    assert "another copy writes to" in capsys.readouterr().err
    client = Client(etcd.config)
    assert not client.call(RANGE, pb.RangeRequest(key=f"{prefix}/configmaps/ns/c0000".encode())).kvs
    client.close()


@pytest.mark.parametrize("source_is", ["lmdb", "etcd"])
def test_values_in_etcd_have_the_requested_format(etcd: Etcd, prefix: str, tmp_path: Path, capsys, source_is: str) -> None:
    with Etcd(tmp_path) as target:
        source = make_lmdb(tmp_path / "a", 3) if source_is == "lmdb" else make_etcd(etcd, prefix, 3)
        args = ["copy", "--from", source, "--to", f"etcd:{target.url}", f"--prefix={prefix}", "--storage-media-type=application/json"]
        for again in (False, True):
            assert main(args) == 0
            out = capsys.readouterr().out
            assert "sha256 of both sides" in out and ("continued" in out) == again
        found = values(target, prefix)
        assert len(found) == len(objects(3)) + 1
        for kv in found.values():
            obj = orjson.loads(kv.value)
            assert obj["kind"] and obj["metadata"]["name"] and "resourceVersion" not in obj["metadata"]


def test_an_unreachable_cluster_is_named_soon():
    place = EtcdConfig(("http://127.0.0.1:1",))
    with pytest.raises(Refused, match=r"^etcd:http://127\.0\.0\.1:1 does not answer: "):
        EtcdPlace(place, Keys("/registry"), reach_s=0.2)


def test_an_interrupt_is_reported_and_the_copy_can_be_continued(
    etcd: Etcd, prefix: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, source, pages = EtcdPlace._write, make_lmdb(tmp_path / "a", 1200), 0

    def interrupted(self, ops, note):
        nonlocal pages
        pages += 1
        if pages == 5:
            raise KeyboardInterrupt
        honest(self, ops, note)

    with monkeypatch.context() as patch:
        patch.setattr(EtcdPlace, "_write", interrupted)
        assert copy(source, f"etcd:{etcd.url}", prefix) == 130
    assert capsys.readouterr().err == "kas: interrupted; run the command again to continue the copy\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert copy(source, f"etcd:{etcd.url}", prefix) == 0
    told = capsys.readouterr()
    assert "copying the rest" in told.err and "continued" in told.out
