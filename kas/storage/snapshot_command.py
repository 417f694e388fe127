"""``kas snapshot``: files with everything stored, at one revision."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from kas.storage import report, unknown
from kas.storage.checking import Checked, check
from kas.storage.command import (
    EXIT_FAILED,
    EXIT_USAGE,
    Arguments,
    Usage,
    arguments,
    begin,
    copy_all,
    etcd_place,
    exit_code,
    keys_of,
    progress,
    split,
    stays,
)
from kas.storage.imageplace import ImageSource
from kas.storage.places import Refused
from kas.storage.snapshots import ETCD, LMDB, Status, kind_of, lmdb_pieces, lmdb_status, restore_lmdb, save, unpacked
from kas.store.etcd.layout import Keys

BUMP = 1_000_000_000  # the bump that etcd's guide to disaster recovery recommends for Kubernetes
# After an interrupt. A store begun from an etcd file is continued; one from an LMDB file does not exist before it is complete.
LEFT = {"save": "no file was written", "restore": "the same command again brings what is missing"}
USAGE = """usage: kas snapshot <command>

  save FILE --from PLACE       write everything in PLACE, which may be in use, to a new file
  restore FILE --to PLACE      make an empty PLACE hold what the file does
  status FILE                  print what the file is: form, SHA-256, revision, objects, size
  verify FILE                  compare the checksum, read every page and every object

PLACE is lmdb:DIR, the --data-dir of a server, or etcd:URL,URL. A file of LMDB is a compact copy of the data file followed by its SHA-256,
one of etcd is etcd's own, which etcdctl and etcdutl read and write; those of members of any size are read here. restore takes either
file to either place, and never writes to a place that holds something.

To LMDB objects keep their resourceVersions, and the store goes on --bump-revision (1000000000; 0: none) further on, so that clients that
saw later ones list anew instead of missing what happens next. Leases from etcd begin anew. To restore a cluster of etcd with its own
revisions use etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted. Certificates, tokens and keys in --data-dir are
not in a snapshot.

A file is of one cluster: what --etcd-servers-overrides keeps in another one is saved from there, to a file of its own.

  --to-overrides               clusters of etcd that get some of the resources, as --etcd-servers-overrides names them
  --prefix                     prefix of the keys in etcd (/registry)
  --from-prefix, --to-prefix   of restore, where that of etcd's file and that of PLACE are not the same
  --etcd-cafile, --etcd-certfile, --etcd-keyfile
                               how etcd is reached
  --encryption-provider-config how sealed values are opened and sealed; files hold them sealed
"""


def main(args: Sequence[str]) -> int:
    """Runs the command; returns the exit code. All errors are reported on standard error."""
    commands: dict[str, Callable[[list[str]], int]] = {"save": _save, "restore": _restore, "status": _status, "verify": _verify}
    if {"-h", "--help"} & set(args):
        print(USAGE, end="")
        return 0
    if not args:
        print(USAGE, end="", file=sys.stderr)
        return EXIT_USAGE
    if args[0] not in commands:
        return unknown("snapshot", args[0], commands)
    return exit_code(commands[args[0]], args[1:], LEFT.get(args[0], ""))


def _file(args: list[str], own: tuple[str, ...]) -> tuple[Path, Arguments]:
    a = arguments(args, own, 1)
    if len(a.words) != 1:
        raise Usage("name the file of the snapshot")
    return Path(a.words[0]), a


def _save(args: list[str]) -> int:
    path, a = _file(args, ("from",))
    kind, where = split(a.own.get("from", ""), "from")
    with progress() as shown:
        bytes_told = lambda n: shown("saving, bytes", n, 0)  # noqa: E731
        if kind == LMDB:
            digest = save(lmdb_pieces(Path(where).expanduser() / "store"), path, bytes_told, sealed=False)
        else:
            with closing(etcd_place(a, "from", where)) as place:
                digest = save(place.snapshot(), path, bytes_told, sealed=True)
    print(f"{path}: {path.stat().st_size} bytes, sha256 {digest}")
    return 0


def _restore(args: list[str]) -> int:
    path, a = _file(args, ("to", "to-overrides", "bump-revision", "from-prefix", "to-prefix"))
    to, where = split(a.own.get("to", ""), "to")
    try:
        bump = int(a.own.get("bump-revision", BUMP))
    except ValueError:
        bump = -1
    if not 0 <= bump < 1 << 62:
        raise Usage("--bump-revision: give a number that is not negative")
    if (kind_of(path), to) == (LMDB, LMDB):
        revision = restore_lmdb(path, Path(where).expanduser().absolute(), bump, a.options.store_max_size)
        print(f"restored; the store goes on at revision {revision}")
        return 0
    begin()
    with progress() as shown, _opened(path, a) as source:
        done = copy_all(source, a, shown, bump)
    return max(report(each, a.own["to"]) for each in done)


def _opened(path: Path, a: Arguments) -> AbstractContextManager[Any]:
    """Returns a checked snapshot as a source."""
    transformers = a.transformers()
    if kind_of(path) == LMDB:
        return unpacked(path, path.absolute().parent, transformers)
    return _image(path, a, transformers)


@contextmanager
def _image(path: Path, a: Arguments, transformers: Any):
    with closing(ImageSource(path, keys_of(a, "from"), transformers, stays(a))) as source:
        source.look()
        yield source


def _status(args: list[str]) -> int:
    path, a = _file(args, ())
    if kind_of(path) == LMDB:
        status = lmdb_status(path, path.absolute().parent)
    else:
        with closing(ImageSource(path, Keys(a.options.raw.etcd_prefix))) as image:
            status = Status(ETCD, image.sha256, image.newest(), image.count(), path.stat().st_size)
            print(f"revisions   {image.revisions}")
    print(f"form        {status.form}\nsha256      {status.sha256 or 'none: it is the file of a member'}")
    print(f"revision    {status.revision}\nobjects     {status.keys}\nbytes       {status.size}")
    return 0


def _verify(args: list[str]) -> int:
    path, a = _file(args, ())
    begin()
    with _opened(path, a) as source:
        if isinstance(source, ImageSource) and not source.sha256:
            raise Refused(f"{path} carries no checksum: it is the file of a member, not a snapshot")
        found: Checked = check(source)
    for key, why in found.wrong:
        print(f"{key}: {why}")
    print(f"{path}: {found.objects} objects at revision {found.revision}, {len(found.wrong)} findings", file=sys.stderr)
    return EXIT_FAILED if found.wrong else os.EX_OK
