"""Snapshots of LMDB and of etcd: saved from a store in use, restored, and refused when they are incomplete."""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import lmdb
import pytest

from kas.storage import main as storage
from kas.storage.imageplace import ImageSource
from kas.storage.snapshot_command import main
from kas.store import Op
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.bolt import ELEMENT, LEAF, PAGE, BadSnapshot, Bolt
from kas.store.etcd.client import PUT, TXN, Client
from kas.store.etcd.layout import Keys
from kas.store.unfinished import unfinished
from tests.etcd import Etcd, snapshots
from tests.storage.places import EVENT, MAPS, config_map, kas, make_etcd, make_lmdb, objects, opened, put, write


def status(path: Path, capsys, *flags: str) -> dict[str, str]:
    assert main(["status", str(path), *flags]) == 0
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def stored(data_dir: Path) -> list[tuple]:
    store = opened(data_dir)
    try:
        return [(r.key, r.revision, r.version, r.json, r.labels, r.fields, bool(r.lease_expiry)) for r in store.range("/registry/").records]
    finally:
        store.close()


def test_lmdb_is_saved_while_it_is_used_and_restored(tmp_path: Path, capsys) -> None:
    place, file = make_lmdb(tmp_path / "a"), tmp_path / "s"
    before = stored(tmp_path / "a")
    assert main(["save", str(file), "--from", place]) == 0
    raw = file.read_bytes()
    assert hashlib.sha256(raw[:-32]).digest() == raw[-32:] and os.stat(file).st_mode & 0o77 == 0
    told = status(file, capsys.readouterr() and capsys)
    assert told == {"form": "lmdb", "sha256": raw[-32:].hex(), "revision": "28", "objects": "28", "bytes": str(len(raw))}
    assert main(["verify", str(file)]) == 0
    assert main(["restore", str(file), "--to", f"lmdb:{tmp_path / 'b'}"]) == 0
    assert "goes on at revision 1000000028" in capsys.readouterr().out
    assert os.stat(tmp_path / "b" / "store" / "data.mdb").st_mode & 0o77 == 0
    assert stored(tmp_path / "b") == before
    store = opened(tmp_path / "b")
    try:
        assert (store.revision, store.compacted_revision) == (1000000028, 1000000028)
        store.commit_now(Op(MAPS + "c0001", None))
        assert store.revision == 1000000029
    finally:
        store.close()
    assert main(["restore", str(file), "--to", f"lmdb:{tmp_path / 'b'}"]) == 1
    assert "holds a store already" in capsys.readouterr().err and len(stored(tmp_path / "b")) == 27
    assert main(["save", str(file), "--from", place]) == 1
    assert "is there already" in capsys.readouterr().err and file.read_bytes() == raw
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "s"]


def test_etcds_own_files_are_saved_read_and_restored_to_lmdb(tmp_path: Path, capsys) -> None:
    with Etcd(tmp_path) as etcd:
        place, file = make_etcd(etcd, "/registry"), tmp_path / "s.db"
        put(etcd, "/registry", {MAPS + f"c{i:04}": config_map(f"c{i:04}", "y" * 5000) for i in range(300)})
        client = Client(etcd.config)
        gone = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=(MAPS + "c0007").encode()))
        newest = client.call(TXN, pb.TxnRequest(success=[gone])).header.revision
        found = {kv.key.decode(): kv for kv in client.range(b"/registry/").kvs}
        newest = client.call(PUT, pb.PutRequest(key=Keys("/registry").fence)).header.revision  # which is no object
        client.close()
        assert main(["save", str(file), "--from", place]) == 0
        member = tmp_path / "member.db"
        shutil.copy(etcd.data / "member" / "snap" / "db", member)
    capsys.readouterr()
    command, env = [snapshots(), "snapshot", "status", str(file), "-w", "json"], {**os.environ, "ETCDCTL_API": "3"}
    asked = subprocess.run(command, env=env, capture_output=True, check=True)
    theirs = json.loads(asked.stdout)
    told = status(file, capsys)
    assert (told["form"], int(told["revision"]), int(told["bytes"])) == ("etcd", theirs["revision"], theirs["totalSize"] + 32)
    assert theirs["revision"] == newest and int(told["objects"]) == len(found)
    assert main(["verify", str(file)]) == 0
    for command in (["verify", str(file)], ["restore", str(file), "--to", f"lmdb:{tmp_path / 'b'}"]):
        assert main([*command, "--prefix=/elsewhere"]) == 1
        assert "holds nothing below /elsewhere, but keys elsewhere" in capsys.readouterr().err
    assert main(["verify", str(member)]) == 1
    assert "carries no checksum" in capsys.readouterr().err
    assert main(["restore", str(file), "--to", f"lmdb:{tmp_path / 'a'}"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"restored; the store goes on at revision {1000000000 + newest}"]
    store = opened(tmp_path / "a")
    try:
        records = store.range("/registry/").records
        assert {r.key: (r.revision, r.create_revision, r.version) for r in records} == {
            key: (kv.mod_revision, kv.create_revision, kv.version) for key, kv in found.items()
        }
        assert len(records) == 302 and store.leased() == [(EVENT, found[EVENT].mod_revision)]
    finally:
        store.close()


def _bumped(raw: bytearray) -> None:
    """Replaces the newest revision of a snapshot by one without a key, as ``etcdutl snapshot restore --bump-revision`` leaves it."""
    found = []
    for at in range(0, len(raw) - 32, 4096):
        _, flags, count, _ = PAGE.unpack_from(raw, at)
        for here in range(at + PAGE.size, at + PAGE.size + count * ELEMENT.size, ELEMENT.size) if flags == LEAF else ():
            _, offset, key_size, _ = ELEMENT.unpack_from(raw, here)
            found.append((bytes(raw[here + offset : here + offset + key_size]), here))
    newest = max(key for key, _ in found if len(key) == 17 and key[8:9] == b"_" and key[9:] == bytes(8))
    for key, here in found:
        if key == newest:
            raw[here + 12 : here + 16] = bytes(4)
    raw[-32:] = hashlib.sha256(raw[:-32]).digest()


def test_a_cluster_that_was_restored_with_a_higher_revision_is_saved_and_read(tmp_path: Path, capsys) -> None:
    file = tmp_path / "s.db"
    with Etcd(tmp_path) as etcd:
        place = make_etcd(etcd, "/registry")
        put(etcd, "/registry", {MAPS + "the-bump": config_map("the-bump")})
        assert main(["save", str(file), "--from", place]) == 0
    before = status(file, capsys.readouterr() and capsys)
    raw = bytearray(file.read_bytes())
    _bumped(raw)
    file.write_bytes(raw)
    after = status(file, capsys)
    assert after["revision"] == before["revision"] and int(after["objects"]) == int(before["objects"]) - 1
    assert main(["verify", str(file)]) == 0
    assert main(["restore", str(file), "--to", f"lmdb:{tmp_path / 'a'}"]) == 0


def test_a_snapshot_of_lmdb_fills_a_cluster(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "s"
    assert main(["save", str(file), "--from", make_lmdb(tmp_path / "a", 3)]) == 0
    assert main(["restore", str(file), "--to", f"etcd:{etcd.url}", f"--prefix={prefix}"]) == 0
    assert sorted(etcd.keys(prefix + "/")) == sorted(prefix + key.removeprefix("/registry") for key in (*objects(3), EVENT))
    put(etcd, prefix, {MAPS + "later": config_map("later")})
    assert main(["restore", str(file), "--to", f"etcd:{etcd.url}", f"--prefix={prefix}"]) == 1
    assert "was written to since" in capsys.readouterr().err


def test_a_snapshot_of_etcd_comes_below_another_prefix(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    file, place = tmp_path / "s", make_etcd(etcd, prefix, 3)
    assert main(["save", str(file), "--from", place]) == 0
    command = ["restore", str(file), "--to", place, f"--to-prefix={prefix}-2"]
    assert main(command) == 1
    assert "holds nothing below /registry, but keys elsewhere" in capsys.readouterr().err
    assert main([*command, f"--from-prefix={prefix}"]) == 0
    there, here = (sorted(key.removeprefix(at) for key in etcd.keys(at + "/")) for at in (prefix, f"{prefix}-2"))
    assert there == here and len(here) == 6
    assert main(["restore", str(file), f"--to=lmdb:{tmp_path}", "--to-prefix=/a"]) == 2


def test_an_interrupt_reports_the_resulting_state(etcd: Etcd, prefix: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted save leaves nothing; an interrupted restore is completed by the same command."""
    place, file, again = make_lmdb(tmp_path / "a", 1200), str(tmp_path / "f"), tmp_path / "again"

    def interrupted(at: str, nth: int, *command: str) -> str:
        honest, calls = pkgutil.resolve_name(at), 0

        def once(*args, **more):
            nonlocal calls
            calls += 1
            if calls == nth:
                raise KeyboardInterrupt
            return honest(*args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(at, once)
            assert main(command) == 130
        return capsys.readouterr().err

    assert interrupted("os.fsync", 1, "save", file, "--from", place) == "kas: interrupted; no file was written\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    assert main(["save", file, "--from", place]) == 0
    told = "kas: interrupted; the same command again brings what is missing\n"
    assert interrupted("kas.storage.snapshots.bumped", 1, "restore", file, "--to", f"lmdb:{again}") == told
    assert main(["restore", file, "--to", f"lmdb:{again}"]) == 0 and stored(again) == stored(tmp_path / "a")
    to = ("restore", file, "--to", f"etcd:{etcd.url}", "--prefix", prefix)
    assert interrupted("kas.storage.etcdplace.EtcdPlace._write", 5, *to) == told
    assert main(to) == 0 and "continued" in capsys.readouterr().out
    assert interrupted("kas.storage.snapshot_command.check", 1, "verify", file) == "kas: interrupted\n"


def test_a_restore_interrupted_in_its_last_step_continues(
    etcd: Etcd, prefix: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restored store is at the higher revision, and continuing does not raise it twice."""
    file, to = tmp_path / "f", tmp_path / "to"
    assert main(["save", str(file), "--from", make_etcd(etcd, prefix, 3)]) == 0
    command, newest = ["restore", str(file), "--to", f"lmdb:{to}", f"--prefix={prefix}"], ImageSource(file, Keys(prefix)).newest()
    replace = os.replace

    def ended(of: Path, at: Path) -> None:
        if at == to / "store":
            raise KeyboardInterrupt
        replace(of, at)

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", ended)
        assert main(command) == 130
    assert not (to / "store").exists() and "store.copying is an incomplete store" in unfinished(to)
    assert main(command) == 0 and not unfinished(to)
    assert capsys.readouterr().out.splitlines()[-1] == f"restored; the store goes on at revision {newest + 1000000000}"
    store = opened(to)
    try:
        assert store.revision == newest + 1000000000 == store.compacted_revision
    finally:
        store.close()


@pytest.mark.parametrize("form", ["lmdb", "etcd"])
def test_files_that_are_no_snapshots_are_refused_in_one_line(etcd: Etcd, prefix: str, tmp_path: Path, capsys, form: str) -> None:
    place = make_lmdb(tmp_path / "a", 3) if form == "lmdb" else make_etcd(etcd, prefix, 3)
    good = tmp_path / "good"
    assert main(["save", str(good), "--from", place]) == 0
    raw = good.read_bytes()
    flipped = bytearray(raw)
    flipped[len(raw) // 2] ^= 1
    bad = {
        "empty": b"", "short": raw[:100], "cut": raw[:-1], "half": raw[: len(raw) // 8192 * 4096], "flipped": bytes(flipped),
        "more": raw + b"x", "foreign": b"SQLite format 3\0" + bytes(9000), "zeros": bytes(len(raw)),
    }  # fmt: skip
    capsys.readouterr()
    for name, content in bad.items():
        file = tmp_path / name
        file.write_bytes(content)
        for command in (["verify", str(file)], ["restore", str(file), "--to", f"lmdb:{tmp_path / 'to'}"], ["status", str(file)]):
            assert main([*command, f"--prefix={prefix}"]) == 1, (name, command)
            told = capsys.readouterr().err
            assert told.startswith(f"kas: {file} ") and told.count("\n") == 1, (name, told)
        assert not (tmp_path / "to").exists(), name
    assert main(["verify", str(tmp_path / "nothing")]) == 1 and "No such file" in capsys.readouterr().err


def test_an_lmdb_file_of_another_program_is_refused(tmp_path: Path, capsys) -> None:
    file = tmp_path / "s"
    with lmdb.open(str(tmp_path / "other")) as env:
        with env.begin(write=True) as txn:
            txn.put(b"a", b"b")
        env.copy(str(tmp_path), compact=True)
    raw = (tmp_path / "data.mdb").read_bytes()
    file.write_bytes(raw + hashlib.sha256(raw).digest())
    assert main(["restore", str(file), "--to", f"lmdb:{tmp_path / 'a'}"]) == 1
    assert capsys.readouterr().err == f"kas: {file} is no snapshot: it is LMDB's, but holds no store of kas\n"
    assert not (tmp_path / "a" / "store").exists()


def test_any_damaged_etcd_file_is_read_or_refused(etcd: Etcd, prefix: str, tmp_path: Path) -> None:
    """Bytes are changed in many places, most of them in the headers of pages."""
    place, good = make_etcd(etcd, prefix, 60), tmp_path / "good"
    assert main(["save", str(good), "--from", place]) == 0
    raw = good.read_bytes()[:-32]
    random, refused = Random(12), 0
    for _ in range(400):
        bad = bytearray(raw)
        for _ in range(random.choice((1, 1, 4, 64))):
            page = random.randrange(len(raw) // 4096) * 4096
            bad[page + random.randrange(random.choice((16, 64, 4096)))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        file = tmp_path / "bad"
        file.write_bytes(bad[: random.choice((len(bad), len(bad), len(bad) // 2))])
        try:
            with Bolt(file) as bolt:
                _, _, found = bolt.newest(b"/")
                for _, _, at, size in found:
                    bolt.read(at, size)
                bolt.leases()
        except BadSnapshot as e:
            refused += 1
            assert "\n" not in str(e)
    assert refused > 50


def test_a_snapshot_of_a_running_server_is_consistent(tmp_path: Path, capsys) -> None:
    place, file = make_lmdb(tmp_path / "a", 3), tmp_path / "s"
    assert main(["save", str(file), "--from", place]) == 0
    store = opened(tmp_path / "a")
    write(store, {MAPS + "later": config_map("later")})
    store.close()
    capsys.readouterr()
    assert status(file, capsys)["objects"] == "6"


def test_errors_on_the_command_line(tmp_path: Path, capsys) -> None:
    for args, code, why in (
        ([], 2, "usage"), (["sav"], 2, "kas: unknown command 'sav' of kas snapshot (did you mean save?); see kas snapshot --help\n"),
        (["save", "--from", "lmdb:/x"], 2, "name the file"),
        (["save", str(tmp_path / "s")], 2, "--from"), (["save", str(tmp_path / "s"), "--from", f"lmdb:{tmp_path}"], 1, "holds no store"),
        (["restore", str(tmp_path / "s"), "--to", "lmdb:/x", "--bump-revision=-1"], 2, "--bump-revision"),
    ):  # fmt: skip
        assert main(args) == code
        assert why in capsys.readouterr().err
    assert kas("snapshot", "status", tmp_path / "s").returncode == 1
    assert main(["--help"]) == 0 and capsys.readouterr().out.startswith("usage: kas snapshot")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "text", "why"), [
    ("thesis.txt", "precious", "is not empty and not a kas data directory"), ("format", "99\n", "has format 99; this kas knows format 1"),
])  # fmt: skip
def test_a_directory_with_other_files_is_left_alone(tmp_path: Path, capsys, name: str, text: str, why: str) -> None:
    place, file = make_lmdb(tmp_path / "a"), tmp_path / "s"
    assert main(["save", str(file), "--from", place]) == 0
    (to := tmp_path / "to").mkdir()
    (to / name).write_text(text)
    assert main(["restore", str(file), "--to", f"lmdb:{to}"]) != 0
    assert why in capsys.readouterr().err
    assert [(p.name, p.read_text()) for p in to.iterdir()] == [(name, text)]


def test_a_full_disk_is_reported_in_one_line_and_the_command_continues_with_room(tmp_path: Path, capsys) -> None:
    place, file, to = make_lmdb(tmp_path / "a", 300), tmp_path / "s", f"lmdb:{tmp_path / 'b'}"

    def without_room(*args: str) -> str:
        limit = (50_000, 50_000)
        done = subprocess.run(
            [sys.executable, "-m", "kas", *args], capture_output=True, text=True, timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        return done.stderr

    assert without_room("snapshot", "save", str(file), "--from", place) == f"kas: {file}: File too large\n"
    assert list(tmp_path.glob("s*")) == []
    assert without_room("storage", "copy", "--from", place, "--to", to).startswith("kas: no room is left: ")
    assert storage(["copy", "--from", place, "--to", to]) == 0
    assert "sha256 of both sides" in capsys.readouterr().out and len(stored(tmp_path / "b")) == 303
