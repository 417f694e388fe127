"""``kas storage``: moves, checks and rewrites the content of a server's store; and ``kas snapshot`` (``snapshot_command``).

    migrate   rewrites everything in today's form       places     sources and targets; lmdbplace, etcdplace, imageplace
    copying   copies from one place to another, online  snapshots  files with the content of a place at one revision
    checking  checks the content of a place             command    command lines, places by name
    parts     several clusters as one place
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import closing

from kas.meta.suggest import did_you_mean

EXIT_USAGE, EXIT_FAILED = 2, 1
COMMANDS = ("migrate", "copy", "check")
USAGE = """usage: kas storage <command>

  migrate    write again what is not stored with today's encryption keys, and forget the history; no server on LMDB may run
  copy       copy all objects from one place to another, online: LMDB to etcd, etcd to LMDB, or the same kind
  check      see whether everything stored can be read and fits

kas storage <command> --help tells more.
"""
COPY = """usage: kas storage copy --from PLACE --to PLACE [--prefix=/registry] [--from-overrides=…] [--to-overrides=…] [flags of kas serve]

PLACE is lmdb:DIR, the --data-dir of a server, or etcd:URL,URL. Copies all objects while servers write to the source: everything at one
revision, then what happened since, until little does; then both sides are read again and compared by a digest over keys and values. A
copy that was interrupted goes on when it is asked for again; one that is complete brings what happened since, as long as nobody else wrote
to the target. So: copy while the servers run, stop them, copy once more, start servers on the target.

The target must be empty, a directory without a store, or hold the same copy. To LMDB objects keep their resourceVersions; in etcd they get
etcd's, and every client has to list anew. What is left of a lease stays. Values that cannot be read are named and left out (exit code 1).
Certificates, tokens and keys in --data-dir are not objects: copy them by hand.

  --from, --to          the places
  --from-overrides, --to-overrides
                        clusters of etcd that keep some of the place's resources, as --etcd-servers-overrides names them:
                        /events#http://10.0.0.9:2379;http://10.0.0.10:2379
  --from-prefix, --to-prefix
                        prefix of the keys in an etcd; --prefix for both. Sealed values need --encryption-provider-config when they are
                        not the same, since each is sealed for its key
  --etcd-cafile, --etcd-certfile, --etcd-keyfile
                        how etcd is reached, for both sides
  --encryption-provider-config
                        how values are opened, and sealed again; between two etcds sealed values may stay as they are without it
  --storage-media-type  application/json: what etcd gets is JSON; else built-in objects of an LMDB are protobuf there, and what comes
                        from an etcd stays as it is
"""
CHECK = """usage: kas storage check --from PLACE [--from-overrides=…] [--prefix=/registry] [flags of kas serve]

Reads everything in lmdb:DIR or etcd:URL,URL as of one revision, while servers may run, and lists on standard output what is wrong: a value
that cannot be read or opened, an object at a key that is not its own; in LMDB also labels, fields and protobuf that do not fit the object,
leases that nothing ends, and a history that does not lead to what is there. Exit code 0: nothing is; 1: something is.
"""


def main(args: Sequence[str]) -> int:
    """Runs the command; returns the exit code. All errors are reported on standard error."""
    name, rest = (args[0], list(args[1:])) if args else ("", [])
    asked = bool({"-h", "--help"} & set(args))
    usage = {"copy": COPY, "check": CHECK}.get(name, USAGE)
    if name == "migrate":
        from kas.storage.migrate import main as migrate

        return migrate(rest)
    if asked or not args:
        print(usage, end="", file=sys.stdout if asked else sys.stderr)
        return 0 if asked else EXIT_USAGE
    if name not in COMMANDS:
        return unknown("storage", name, COMMANDS)
    from kas.storage.command import exit_code

    if name == "check":
        return exit_code(_check, rest)
    return exit_code(_copy, rest, "run the command again to continue the copy")


def unknown(command: str, name: str, known: Iterable[str]) -> int:
    """Reports that ``kas COMMAND`` has no subcommand ``name``; returns the exit code."""
    print(f"kas: unknown command {name!r} of kas {command}{did_you_mean(name, known)}; see kas {command} --help", file=sys.stderr)
    return EXIT_USAGE


def _copy(args: list[str]) -> int:
    from kas.storage import command

    a = command.arguments(args, ("from", "to", "from-overrides", "to-overrides", "from-prefix", "to-prefix"))
    for flag in ("from", "to"):  # before either is contacted
        command.split(a.own.get(flag, ""), flag)
    command.begin()
    with command.progress() as shown, closing(command.source_of(a)) as source:
        done = command.copy_all(source, a, shown)
    return max(report(each, a.own["to"]) for each in done)


def report(done, target: str) -> int:
    """Reports the result of a copy to the user; returns the exit code."""
    for key, why in sorted(done.unreadable.items()):
        print(f"kas: {key} is left out: {why}", file=sys.stderr)
    if not done.verified:
        for key in done.different:
            print(f"kas: {key} is not the same on both sides", file=sys.stderr)
        print(f"kas: {target} differs from the source, and must not be used", file=sys.stderr)
        return EXIT_FAILED
    leased = f" and {done.leased} with a lease" if done.leased else ""
    went_on = ", continued" if done.resumed else ""
    print(f"{done.objects} objects{leased} as of revision {done.revision}{went_on}; sha256 of both sides {done.digest}")
    print(done.revisions)
    return EXIT_FAILED if done.unreadable else 0


def _check(args: list[str]) -> int:
    from kas.storage import command
    from kas.storage.checking import check

    a = command.arguments(args, ("from", "from-overrides"))
    command.begin()
    with closing(command.source_of(a)) as source:
        found = check(source)
    for key, why in found.wrong:
        print(f"{key}: {why}")
    history = f", {found.writes} writes in the history" if found.writes else ""
    looked = f"{found.objects} objects, {found.bytes} bytes at revision {found.revision}{history}"
    print(f"kas: {looked}: {len(found.wrong)} findings", file=sys.stderr)
    return EXIT_FAILED if found.wrong else 0
