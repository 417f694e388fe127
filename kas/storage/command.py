"""Shared by ``kas storage`` and ``kas snapshot``: command lines, places by name, encryption, progress on a terminal."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from kas import kinds
from kas.config import features, overrides
from kas.config.flags import BY_NAME
from kas.config.flags.storage import JSON
from kas.config.options import Completed, complete, read
from kas.meta.suggest import did_you_mean
from kas.preflight import preflight
from kas.storage.copying import Copied, Copy, Progress
from kas.storage.parts import Joined, Part, Prefixes
from kas.storage.places import Refused, Source, Target
from kas.store.errors import Full, StoreError
from kas.store.etcd.layout import Keys
from kas.store.transform import Transformers

EXIT_USAGE, EXIT_FAILED = 2, 1
EXIT_INTERRUPTED = 128 + 2  # the shell's exit code for SIGINT
SHOWN_S = 0.2
SIDES = ("from", "to")


class Usage(ValueError):
    """The command line is wrong; one line for each mistake."""


@dataclasses.dataclass
class Arguments:
    """A parsed command line: its own flags by name, other words, and flags of ``kas serve``."""

    own: dict[str, str]
    words: list[str]
    options: Completed

    def transformers(self) -> Transformers | None:
        """Returns the transformers of ``--encryption-provider-config``, whose keys are opened first. Raises ``Refused``."""
        encryption = encryption_of(self.options)
        if encryption is None:
            return None
        if why := encryption.begin():
            raise Refused(f"KMS provider {why}")
        return encryption.transformer


def exit_code(run: Callable[[list[str]], int], args: Sequence[str], left: str = "") -> int:
    """Runs a command and returns its exit code. Exceptions are reported on standard error: 2 for a wrong command line, 130
    for an interrupt, with the text ``left`` about what remains, 1 for everything else."""
    try:
        return run(list(args))
    except KeyboardInterrupt:
        code, text = EXIT_INTERRUPTED, "interrupted" + (left and f"; {left}")
    except Usage as e:
        code, text = EXIT_USAGE, str(e)
    except Full as e:
        code, text = EXIT_FAILED, f"no room is left: {e}"
    except OSError as e:
        code, text = EXIT_FAILED, (f"{e.filename}: " if e.filename else "") + (e.strerror or str(e))
    except (StoreError, ValueError) as e:
        code, text = EXIT_FAILED, str(e)
    for line in text.splitlines():
        print(f"kas: {line}", file=sys.stderr)
    return code


def arguments(args: Sequence[str], own: Sequence[str], words: int = 0) -> Arguments:
    """Parses ``--name=value`` and ``--name value`` of ``own``, ``words`` other words, and flags of ``kas serve``;
    ``--prefix`` is ``--etcd-prefix``, and the default of ``keys_of``. Raises ``Usage``."""
    found: dict[str, str] = {}
    plain: list[str] = []
    rest: list[str] = []
    errors: list[str] = []
    left = list(args)
    while left:
        arg = left.pop(0)
        name, sep, value = arg[2:].partition("=")
        if not arg.startswith("-") or arg == "-":
            plain.append(arg)
        elif arg.startswith("--") and name in own:
            if not sep and not left:
                errors.append(f"flag needs an argument: --{name}")
            else:
                found[name] = value if sep else left.pop(0)
        else:
            meant = "" if name.replace("_", "-") in BY_NAME or name == "prefix" else did_you_mean(name, own, "--")
            if meant:
                errors.append(f"unknown flag: --{name}{meant}")
            to = [] if meant else rest
            to.append("--etcd-prefix" + arg.removeprefix("--prefix") if name == "prefix" else arg)
            if not sep and left and not left[0].startswith("-"):
                to.append(left.pop(0))
    if len(plain) > words:
        errors.append(f"unexpected argument {plain[words]}")
    options, wrong = read(rest)
    if options.etcd_servers_overrides:
        errors.append("--etcd-servers-overrides: each place is named by itself, its other clusters by --from-overrides or --to-overrides")
    errors += wrong + preflight(options)
    errors += [
        f"--{side}-prefix: only etcd has a prefix"
        for side in SIDES if f"{side}-prefix" in found and side in own and not found.get(side, "").startswith("etcd:")
    ]  # fmt: skip
    if errors:
        raise Usage("\n".join(errors))
    return Arguments(found, plain, complete(options))


def keys_of(a: Arguments, side: str) -> Keys:
    """Returns the keys of the place of ``--from`` or ``--to``: below ``--from-prefix`` or ``--to-prefix``, otherwise
    ``--prefix``."""
    return Keys(a.own.get(f"{side}-prefix", a.options.raw.etcd_prefix))


def stays(a: Arguments) -> bool:
    """Returns whether objects keep their keys in etcd."""
    return keys_of(a, "from").prefix == keys_of(a, "to").prefix or not a.own.get("to", "").startswith("etcd:")


def encryption_of(o: Completed):
    """Returns the ``EncryptionAtRest`` of a configuration, whose keys are not opened yet; None without one."""
    if not o.raw.encryption_provider_config:
        return None
    from kas.encryption.atrest import EncryptionAtRest
    from kas.types.scheme import Scheme

    return EncryptionAtRest(o.raw.encryption_provider_config, False, "KMSv1" in features.enabled(o.raw.feature_gates), Scheme().resources)


def split(place: str, flag: str) -> tuple[str, str]:
    """Returns ("lmdb", directory) or ("etcd", URLs). Raises ``Usage``."""
    if not place:
        raise Usage(f"--{flag}: name a place, lmdb:DIR or etcd:URL,URL")
    kind, sep, where = place.partition(":")
    if kind not in ("lmdb", "etcd") or not sep or not where:
        raise Usage(f"--{flag}: {place!r} is neither lmdb:DIR nor etcd:URL,URL")
    if kind == "etcd":
        for url in filter(None, where.split(",")):
            if why := overrides.server_mistake(url):
                raise Usage(f"--{flag}: {why}")
    return kind, where


def etcd_place(a: Arguments, side: str, urls: str):
    """Returns a cluster of the place of ``--from`` or ``--to``. Raises ``StoreError`` if it does not answer."""
    try:
        from kas.replicator import cluster
        from kas.storage.etcdplace import EtcdPlace
    except ImportError as e:
        raise Refused(f"etcd needs the extra kas[etcd]: {e}") from None
    config = dataclasses.replace(cluster(a.options), servers=tuple(url for url in urls.split(",") if url))
    return EtcdPlace(config, keys_of(a, side), a.transformers(), stays=side == "to" or stays(a))


def others_of(a: Arguments, flag: str) -> list[tuple[str, Prefixes]]:
    """Returns the clusters that ``--from-overrides`` or ``--to-overrides`` names for a place, by their URLs, with the
    prefixes of their keys. Raises ``Usage``."""
    given = [value for value in a.own.get(f"{flag}-overrides", "").split(",") if value]
    if not given:
        return []
    kind, where = split(a.own.get(flag, ""), flag)
    wrong = [f"--{flag}-overrides: {why.partition(' ')[2]}" for why in overrides.mistakes(given)]
    named = [url for value in given for url in value.partition("#")[2].split(";") if url]
    wrong += [f"--{flag}-overrides: {why}" for why in map(overrides.server_mistake, named) if why]
    if kind != "etcd":
        wrong.append(f"--{flag}-overrides: only etcd has other clusters")
    if wrong:
        raise Usage("\n".join(wrong))
    from kas.replicator import kept_below  # needs the extra kas[etcd]

    found = []
    for other in overrides.overrides(given, where.split(",")):
        prefixes = kept_below(other)
        if not prefixes:
            raise Usage(f"--{flag}-overrides: {' '.join('/'.join(pair) for pair in other.resources)}: nothing that another cluster keeps")
        found.append((",".join(other.servers), tuple(prefixes)))
    return found


def source_of(a: Arguments):
    """Returns the place of ``--from``. Raises ``Usage``, ``StoreError``."""
    kind, where = split(a.own.get("from", ""), "from")
    others = others_of(a, "from")
    if kind == "etcd":
        place = etcd_place(a, "from", where)
        place.look()
        return Joined(place, [(etcd_place(a, "from", o), kept) for o, kept in others]) if others else place
    from kas.storage.lmdbplace import LMDBSource

    return LMDBSource(Path(where).expanduser() / "store", f"lmdb:{where}", a.options.store_max_size, a.transformers())


def target_of(a: Arguments, bump: int):
    """Returns the place of ``--to``; an LMDB store continues at a revision ``bump`` above its source's. Raises ``Usage``,
    ``StoreError``."""
    kind, where = split(a.own.get("to", ""), "to")
    if kind == "etcd":
        return etcd_place(a, "to", where)
    from kas.storage.lmdbplace import LMDBTarget

    return LMDBTarget(Path(where).expanduser().absolute(), a.options.store_max_size, a.transformers(), bump)


def copy_all(source: Source, a: Arguments, shown: Progress, bump: int = 0) -> list[Copied]:
    """Copies to the place of ``--to``: to each of its clusters the keys that it holds. Raises ``Usage``, ``StoreError``."""
    others, as_json = others_of(a, "to"), a.options.raw.storage_media_type == JSON
    kept = tuple(prefix for _, prefixes in others for prefix in prefixes)
    with closing(target_of(a, bump)) as target:
        _apart(source, target)
        done = [Copy(Part(source, kept, False) if others else source, target, shown, as_json).run()]
    for urls, prefixes in others:
        with closing(etcd_place(a, "to", urls)) as target:
            _apart(source, target)
            done.append(Copy(Part(source, prefixes, True), target, shown, as_json).run())
    return done


def _apart(source: Source, target: Target) -> None:
    """Raises ``Refused`` if a copy would read and copy what it writes."""
    if any(target.overlaps(place) for place in (source.places if isinstance(source, Joined) else (source,))):
        raise Refused(f"{target.name}: one of the two prefixes lies within the other, in the same cluster")


def begin() -> None:
    """Loads the kinds, whose rules define the stored form of objects."""
    kinds.install()


class Shown:
    """Progress on standard error, if it is a terminal."""

    def __init__(self) -> None:
        self._on, self._at, self._began, self._phase = sys.stderr.isatty(), 0.0, 0.0, ""

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._on or (phase == self._phase and now - self._at < SHOWN_S):
            return
        if phase != self._phase:
            self._phase, self._began = phase, now
        self._at = now
        rate = f", {done / (now - self._began):,.0f}/s" if now > self._began else ""
        bar = "#" * (30 * min(done, total) // total) if total else ""
        share = f" [{bar:30}] {done:,} of {total:,}" if total else f" {done:,}"
        print(f"\r\x1b[K{phase}{share}{rate}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clears the line."""
        if self._on and self._phase:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def progress() -> Iterator[Shown]:
    """``Shown``, cleared at the end in any case."""
    shown = Shown()
    try:
        yield shown
    finally:
        shown.end()
