"""Recorded conversations with kube-apiserver 1.36.2 about security, replayed against kas with the recorded flags and files.

A setup is started once for all its cases. ``known_differences.txt`` lists the steps that differ, and must list exactly these;
``not_yet.txt`` lists the setups that kas does not serve yet.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.testing.plugin import servers
from tests import prerequisites
from tests.etcd import Etcd
from tests.security.normal import differences
from tests.security.session import Session
from tests.vectors import files

HERE = Path(__file__).resolve().parent
KINDS = ("authn", "authz", "audit-e2e", "apf", "encryption", "sa-csr")
SETUPS = {row["id"][6:]: row["in"] for row in files.lines("security/setups")}
CASES: dict[str, list[files.Vector]] = {}
for kind in KINDS:
    for row in files.lines(f"security/{kind}"):
        CASES.setdefault(row["in"]["setup"], []).append(row)


def listed(name: str, columns: int) -> dict[tuple[str, ...], str]:
    """Reads the lines of a file: all columns but the last -> the last. ValueError for a line of another form."""
    out = {}
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            *key, reason = line.split("\t")
            if len(key) != columns - 1 or not reason:
                raise ValueError(f"{name}: not {columns} columns: {line!r}")
            out[tuple(key)] = reason
    return out


KNOWN = listed("known_differences.txt", 3)
NOT_YET = listed("not_yet.txt", 2)
STARTED = sorted(name for name in CASES if (name,) not in NOT_YET)
PARAMS = STARTED or [pytest.param("", marks=prerequisites.missing(f"no recorded conversations in {files.DIRECTORY}"))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("setup", PARAMS)
def test_setup(setup, tmp_path, tmp_path_factory):
    wrong = []
    with store_of(setup, tmp_path_factory) as stored:
        for start in servers(tmp_path_factory):
            wrong += replayed(setup, tmp_path, lambda *flags, start=start: start(*flags, *stored, "--controllers=none"))
    assert not wrong, "\n" + "\n".join(wrong)


@contextlib.contextmanager
def store_of(setup: str, tmp_path_factory) -> Iterator[tuple[str, ...]]:
    """Returns the flags of a server's store. Encrypted values in etcd are bound to their key, so those servers have an etcd of their own.
    """
    if os.environ.get("KAS_BACKEND") != "etcd" or not setup.startswith("enc-"):
        yield ("--unsafe-no-fsync",)
        return
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1"


def replayed(setup: str, directory: Path, begin) -> list[str]:
    """Returns the differences from the record."""
    wrong = []
    with Session(SETUPS[setup], directory, begin) as session:
        for case in sorted(CASES[setup], key=lambda c: c["id"]):
            got = session.run(case)
            different = {i: d for i, (w, g) in enumerate(zip(case["out"], got, strict=True)) if (d := differences(w, g))}
            known = {int(step) for name, step in KNOWN if name == case["id"]}
            wrong += [f"{case['id']}\t{i}\t{'; '.join(different[i][:3])}" for i in sorted(set(different) - known)]
            wrong += [f"{case['id']}\t{i}\tdoes not differ any more" for i in sorted(known - set(different))]
        wrong += session.late()
    return wrong


def test_every_line_of_the_lists_is_used():
    if not CASES:
        prerequisites.give_up(f"no recorded conversations in {files.DIRECTORY}")
    steps = {c["id"]: len(c["in"]["steps"]) for cases in CASES.values() for c in cases}
    assert [key for key in KNOWN if int(key[1]) >= steps.get(key[0], 0)] == []
    assert [name for (name,) in NOT_YET if name not in CASES] == []
