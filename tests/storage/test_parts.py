"""Several etcd clusters as one store: each object is copied to and from the cluster of its resource."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.storage import main
from kas.storage.lmdbplace import LMDBTarget
from kas.storage.places import Entry
from kas.storage.snapshot_command import main as snapshot
from tests.etcd import Etcd
from tests.storage.places import EVENT, event, kas, make_lmdb, objects, opened, put


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """The other cluster."""
    with Etcd(tmp_path_factory.mktemp("events")) as etcd:
        yield etcd


def below(etcd: Etcd, prefix: str) -> set[str]:
    return {key.replace(prefix, "/registry", 1) for key in etcd.keys(prefix + "/")}


def test_each_cluster_gets_its_objects_and_both_are_joined_again(
    etcd: Etcd, events: Etcd, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, others = f"etcd:{etcd.url}", f"/events#{events.url}"
    source = make_lmdb(tmp_path / "a")
    assert main(["copy", "--from", source, "--to", cluster, "--to-overrides", others, f"--prefix={prefix}"]) == 0
    assert (below(etcd, prefix), below(events, prefix)) == (set(objects(25)), {EVENT})

    # Objects of the other cluster's resources in the first one are ignored, and later writes to both are brought by the same copy.
    stray, newer, later = "/registry/events/ns/stray", "/registry/events/ns/newer", "/registry/configmaps/ns/c0099"
    put(etcd, prefix, {stray: event()})
    back = ["copy", "--from", cluster, "--from-overrides", others, "--to", f"lmdb:{tmp_path / 'b'}", f"--prefix={prefix}"]
    assert main(back) == 0
    put(events, prefix, {newer: event().replace(b'"e"', b'"newer"')})
    put(etcd, prefix, {later: objects(100)[later]})
    assert main(back) == 0
    first, second = opened(tmp_path / "a"), opened(tmp_path / "b")
    try:
        before = {record.key: record for record in first.range("/registry/").records}
        after = {record.key: record for record in second.range("/registry/").records}
        assert set(after) == {*before, newer, later}
        assert all(record.revision <= second.revision for record in after.values())
        assert after[EVENT].lease_expiry and all(before[key].labels == after[key].labels for key in before)
    finally:
        first.close()
        second.close()
    capsys.readouterr()
    assert main(["check", "--from", cluster, "--from-overrides", others, f"--prefix={prefix}"]) == 0
    assert "30 objects" in capsys.readouterr().err


def test_a_killed_copy_of_both_continues(
    etcd: Etcd, events: Etcd, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, others = f"etcd:{etcd.url}", f"/events#{events.url}"
    assert main(["copy", "--from", make_lmdb(tmp_path / "a"), "--to", cluster, "--to-overrides", others, f"--prefix={prefix}"]) == 0
    back = ["copy", "--from", cluster, "--from-overrides", others, "--to", f"lmdb:{tmp_path / 'b'}", f"--prefix={prefix}"]
    monkeypatch.setattr("kas.storage.parts.PAGE", 5)
    taken, really = [], LMDBTarget.put

    def dies(self: LMDBTarget, entries: list[Entry], note: object) -> object:
        if len(taken) == 3:
            raise OSError("killed")
        taken.append(len(entries))
        return really(self, entries, note)  # type: ignore[arg-type]

    with monkeypatch.context() as m:
        m.setattr(LMDBTarget, "put", dies)
        assert main(back) == 1
    put(events, prefix, {"/registry/events/ns/a": event().replace(b'"e"', b'"a"')})
    assert main(back) == 0
    store = opened(tmp_path / "b")
    try:
        assert {record.key for record in store.range("/registry/").records} == {*objects(25), EVENT, "/registry/events/ns/a"}
    finally:
        store.close()


def test_a_snapshot_is_restored_to_both(etcd: Etcd, events: Etcd, prefix: str, tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    assert snapshot(["save", file, "--from", make_lmdb(tmp_path / "a")]) == 0
    to = ["--to", f"etcd:{etcd.url}", "--to-overrides", f"/events#{events.url}", f"--prefix={prefix}"]
    assert snapshot(["restore", file, *to]) == 0
    assert (below(etcd, prefix), below(events, prefix)) == (set(objects(25)), {EVENT})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--from=etcd:http://127.0.0.1:1", "--etcd-servers-overrides=/events#http://127.0.0.1:2"), "each place is named by itself"),
        (("--from=lmdb:x", "--from-overrides=/events#http://127.0.0.1:2"), "--from-overrides: only etcd has other clusters"),
        (("--from=etcd:http://127.0.0.1:1", "--from-overrides=events"), "--from-overrides: invalid, must be of format"),
        (("--from=etcd:http://127.0.0.1:1", "--from-overrides=/nothings#http://127.0.0.1:2"), "/nothings: nothing that another cluster"),
    ],
)
def test_errors_on_the_command_line(flags: tuple[str, ...], says: str) -> None:
    done = kas("storage", "copy", *flags, "--to=lmdb:y")
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
