"""A key in etcd that is not text, written by another program under the prefix, does not prevent copying and restoring the rest."""

from __future__ import annotations

from pathlib import Path

from kas.storage import main as storage
from kas.storage.snapshot_command import main as snapshot
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, Client
from tests.etcd import Etcd
from tests.storage.places import MAPS, make_etcd, opened

SHOWN = MAPS + "\\xff\\xfe"


def kept(data_dir: Path) -> list[str]:
    store = opened(data_dir)
    try:
        return [record.key for record in store.range(MAPS).records]
    finally:
        store.close()


def told(capsys) -> bool:
    said = "".join(capsys.readouterr())
    return SHOWN in said and "its key is no text" in said


def test_the_key_is_named_and_left_out(etcd: Etcd, prefix: str, tmp_path: Path, capsys) -> None:
    place = make_etcd(etcd, prefix, 5)
    client = Client(etcd.config)
    client.call(PUT, pb.PutRequest(key=(prefix + MAPS.removeprefix("/registry")).encode() + b"\xff\xfe", value=b"{}"))
    client.close()
    flags = [f"--prefix={prefix}"]
    assert storage(["check", "--from", place, *flags]) == 1
    assert told(capsys)
    assert storage(["copy", "--from", place, "--to", f"lmdb:{tmp_path / 'copied'}", *flags]) == 1
    assert told(capsys)
    file = str(tmp_path / "s")
    assert snapshot(["save", file, "--from", place, *flags]) == 0
    capsys.readouterr()
    assert snapshot(["verify", file, *flags]) == 1
    assert told(capsys)
    assert snapshot(["restore", file, "--to", f"lmdb:{tmp_path / 'restored'}", *flags]) == 1
    assert told(capsys)
    assert kept(tmp_path / "copied") == kept(tmp_path / "restored") and len(kept(tmp_path / "copied")) > 3
