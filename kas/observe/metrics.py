"""Counters, gauges and histograms, stored as plain dictionaries and written in Prometheus' text format.

The hot path adds to a dictionary and never formats. Each worker process has its own registry. It writes ``Registry.dump`` to the run
directory periodically; the worker that serves /metrics merges the dumps, so that the answer covers all workers (the numbers of the others
are at most a second old).

A worker that replaces one that died continues its counters and histograms: a sum that decreased would look like a counter reset, and
everything would be counted twice (Prometheus' ``rate``). ``drop_gauges`` drops those of the dead worker. Names, labels and buckets
are upstream's.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import operator
import os
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

from kas._fastpath import Timer as Timer
from kas.meta.records import NamedTuple
from kas.meta.waiting import TimeSlice
from kas.observe.nativebuckets import bounds_of
from kas.observe.stability import HIDDEN, level_of

Labels = tuple[str, ...]
Of = tuple[str, str]  # group and resource
# Upstream's buckets for the duration of authentication and authorization attempts.
ATTEMPT_SECONDS = tuple(0.001 * 2**i for i in range(15))
DUMPED = ("metrics", "slis")  # the registries of a worker
PIECE = 500  # children that are read or written in one step: between steps, other threads get the GIL or the loop runs other callbacks
# Refreshes metrics before they are read. One with many children does so in the steps of an iterator; metrics may change between the steps.
Collect = Callable[[], Iterator[None] | None]
# help, labels, buckets, and the flag ``finer`` of a histogram or ``same`` of a gauge
About = tuple[str, Iterable[str], Iterable[float] | None, bool]
Read = list[tuple["Metric", dict[Labels, Any], dict[Labels, Any]]]  # a metric, its values, and those of this worker's predecessor

LastDump = dict[str, tuple[dict[Labels, Any], list[str]]]  # metric -> its values, and the dumped lines that state them


class Counter:
    """A counter. The values of all workers are added up unless ``shared`` is False. ``inc`` takes the label values in the order of
    ``labels``.
    """

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Labels = (), shared: bool = True) -> None:
        self.name, self.help, self.labels, self.shared = name, help, labels, shared
        self.values: dict[Labels, float] = {}

    def inc(self, values: Labels = (), by: float = 1) -> None:
        """Adds to the child with these label values, in the order of ``labels``."""
        v = self.values
        v[values] = v.get(values, 0) + by


class Gauge(Counter):
    """A gauge. The values of all workers are added up; if they describe the ``same`` thing, the largest one counts."""

    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Labels = (), shared: bool = True, same: bool = False) -> None:
        super().__init__(name, help, labels, shared)
        self.same = same

    def set(self, values: Labels, to: float) -> None:
        """Sets the child with these label values, in the order of ``labels``."""
        self.values[values] = to


def row_of(buckets: int) -> array[float]:
    """A new child of a histogram with ``buckets`` bounds: a count per bucket, the count above the last bound, and the sum.

    An array holds numbers, not objects: number objects created at each observation would lie scattered over the memory in use at that
    moment and keep it occupied, for example a megabyte from each period in which thousands of watches used it.
    """
    return array("d", bytes(8 * (buckets + 2)))


class Histogram:
    """A histogram. ``observe`` costs one bisection and two additions.

    ``declared`` are the bounds that are exposed, ``buckets`` those that rows count in. These are more when there is a native form, which a
    histogram that is not ``finer`` never has.
    """

    kind, shared = "histogram", True

    def __init__(self, name: str, help: str, labels: Labels, buckets: Iterable[float], finer: bool = True) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.declared, self.finer = tuple(buckets), finer
        # label values -> row: the count per bucket, the count above the last, the sum; see ``row_of``
        self.values: dict[Labels, array[float]] = {}

    @cached_property
    def buckets(self) -> tuple[float, ...]:
        """The bounds that rows count in. Computed on first use, because some histograms are created at import, before the feature gates are
        set.
        """
        return bounds_of(self.declared) if self.finer else self.declared

    @property
    def native(self) -> bool:
        """Whether rows can be exposed as native histograms as well."""
        return len(self.buckets) > len(self.declared)

    def cumulative(self, row: Sequence[float]) -> Iterator[tuple[float, float]]:
        """Yields each exposed bound with the number of observations of ``row`` that are not above it."""
        total, shown = 0.0, set(self.declared)
        for bound, count in zip(self.buckets, row, strict=False):
            total += count
            if bound in shown:
                yield bound, total

    def observe(self, values: Labels, amount: float) -> None:
        """Counts ``amount`` in its bucket, and adds it to the sum."""
        row = self.values.get(values)
        if row is None:
            row = self.values[values] = row_of(len(self.buckets))
        row[bisect.bisect_left(self.buckets, amount)] += 1
        row[-1] += amount


class Observations:
    """A counter of a histogram's observations, for metrics that upstream has under two names: it is derived on reading and costs nothing
    else.
    """

    kind, shared = "counter", True

    def __init__(self, name: str, help: str, histogram: Histogram) -> None:
        self.name, self.help, self.labels, self._histogram = name, help, histogram.labels, histogram

    @property
    def values(self) -> dict[Labels, float]:
        """The number of observations of each child of the histogram."""
        return {labels: int(sum(row[:-1])) for labels, row in self._histogram.values.items()}


Metric = Counter | Gauge | Histogram | Observations
UNEXPECTED = "unexpected"  # exposed in place of a label value that is not allowed
UNEXPECTED_TOTAL = "cardinality_enforcement_unexpected_categorizations_total"  # counts such replacements, if this metric exists


class Shown(NamedTuple):
    """Which metrics are exposed: none of the ``disabled`` ones. ``allowed`` maps a metric and a label to the allowed values of the label.
    ``hidden`` says whether deprecated metrics that are hidden by default are exposed.
    """

    disabled: Set[str] = frozenset()
    allowed: Mapping[str, Mapping[str, Set[str]]] = {}
    hidden: bool = False


EVERYTHING = Shown()


class Registry:
    """All metrics of one worker. ``collectors`` refresh metrics before they are read. ``own_collectors`` do so for metrics that are not
    shared and thus not dumped. ``droppers`` are called with removed resources, to drop what ``collectors`` read.
    """

    def __init__(self, shown: Shown = EVERYTHING) -> None:
        self.shown = shown
        self.metrics: dict[str, Metric] = {}
        self.collectors: list[Collect] = []
        self.own_collectors: list[Collect] = []
        self.droppers: list[Callable[[Set[Of]], None]] = []
        self._gone: set[Of] = set()
        self._before: dict[str, dict[Labels, Any]] = {}  # what this worker's predecessor had counted
        self._resumed: dict[str, Metric] = {}  # the predecessor's metrics, for those that this worker does not have yet

    def resume(self, dumped: bytes) -> None:
        """Continues the counters and histograms of another worker, which has ended, from its ``dump``."""
        self._before = {}
        for kind, name, about, rows in _pieces(dumped):
            if kind == COUNTED:
                self._before.setdefault(name, {}).update(rows)
                self._resumed[name] = _made(kind, name, about)

    def _known(self) -> list[Metric]:
        """All metrics, including those that only the predecessor has had: some are created on first use."""
        return [*self.metrics.values(), *(m for name, m in self._resumed.items() if name not in self.metrics)]

    def read(self, collected: bool = False, own: bool = False) -> Read:
        """A snapshot of all values, for ``dumped`` and ``merged_families``, which take long for many values and may run in any thread.
        ``collected`` skips the refresh; ``own`` refreshes metrics that are not shared as well.
        """
        out: Read = []
        for _ in self._reading(out, collected, own):
            pass
        return out

    async def paced(self, collected: bool = False, own: bool = False) -> Read:
        """Like ``read``, but yields to the event loop in between."""
        out: Read = []
        time_slice = TimeSlice()
        with contextlib.closing(self._reading(out, collected, own)) as steps:
            for _ in steps:
                if time_slice.over:
                    await time_slice.pause()
        return out

    def _reading(self, out: Read, collected: bool, own: bool) -> Generator[None, None, None]:
        """``read`` in steps; appends to ``out``."""
        yield from self._drop_gone()
        for collect in (*(() if collected else self.collectors), *(self.own_collectors if own else ())):
            yield from collect() or ()
            yield
        for m in self._known():
            values: dict[Labels, Any] = {}
            rows: list[tuple[Labels, Any]] = list(m.values.items())
            for i in range(0, len(rows), PIECE):
                values.update((k, v.tolist()) if isinstance(m, Histogram) else (k, v) for k, v in rows[i : i + PIECE])
                yield
            out.append((m, values, self._before.get(m.name, {}) if m.kind != "gauge" else {}))

    def add(self, metric: Any) -> Any:
        """Adds ``metric`` and returns it, or the existing one with the same name: components that are created twice share their metrics."""
        return self.metrics.setdefault(metric.name, metric)

    def counter(self, name: str, help: str, labels: Labels = ()) -> Counter:
        """Adds a counter, or returns the existing metric with this name. ``labels`` are the label names in order."""
        return self.add(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: Labels = (), shared: bool = True, same: bool = False) -> Gauge:
        """Adds a gauge, or returns the existing metric with this name. If it is not ``shared``, each process exposes its own value; if it
        is about the ``same`` thing in all workers, the largest value counts.
        """
        return self.add(Gauge(name, help, labels, shared, same))

    def histogram(self, name: str, help: str, labels: Labels, buckets: Iterable[float], finer: bool = True) -> Histogram:
        """Adds a histogram, or returns the existing metric with this name. ``buckets`` are ascending upper bounds without the infinite one.
        A histogram whose rows are filled elsewhere, in exactly these buckets, must not be ``finer``.
        """
        return self.add(Histogram(name, help, labels, buckets, finer))

    def observations(self, name: str, help: str, histogram: Histogram) -> Observations:
        """Adds a counter of a histogram's observations, or returns the existing metric with this name."""
        return self.add(Observations(name, help, histogram))

    def forget(self, group: str, resource: str) -> None:
        """Drops the children of a removed resource before the next read. Otherwise definitions that come and go would create series without
        end.
        """
        self._gone.add((group, resource))

    def _drop_gone(self) -> Iterator[None]:
        if not self._gone:
            return
        gone, self._gone = self._gone, set()
        for drop in self.droppers:
            drop(gone)
        try:
            for m in self._known():
                if "resource" in m.labels:
                    self._drop(m, gone)
                    yield
        except GeneratorExit:  # the reader was cancelled
            self._gone |= gone
            raise

    def _drop(self, m: Metric, gone: Set[Of]) -> None:
        at = m.labels.index("resource")
        of = m.labels.index("group") if "group" in m.labels else None
        for key in [k for k in m.values if (_named(k[at]) if of is None else (k[of], k[at])) in gone]:
            del m.values[key]
        before = self._before.get(m.name, {})  # it may be in use by a reader
        kept = {k: v for k, v in before.items() if (_named(k[at]) if of is None else (k[of], k[at])) not in gone}
        if len(kept) < len(before):
            self._before[m.name] = kept

    def gauge_value(self, name: str, values: Labels, to: float) -> None:
        """Sets a gauge declared with ``gauge``."""
        self.metrics[name].values[values] = to  # type: ignore[assignment]

    def dump(self) -> bytes:
        """This worker's values, for another worker to merge."""
        return dumped(self.read())

    def expose(self, others: Iterable[bytes] = (), collected: bool = False) -> bytes:
        """Prometheus' text format of this worker's values plus ``others`` (their dumps). ``collected`` skips the refresh, so that the
        answer equals the last dump and shows nothing that would be lost with this worker.
        """
        return exposed(merged_families(self.read(collected, own=True), others, self.shown))


COUNTED, NOW = "counted", "now"


def dumped(read: Read, last: LastDump | None = None) -> bytes:
    """The dump of a worker: lines of JSON, each with some children of a metric and its description, since the reader may not have the
    metric.

    ``last`` holds the previous dump and is updated: few metrics change within a second.
    """
    lines: list[str] = []
    for m, values, before in read:
        if not m.shared:
            continue
        now = _counted(values, before)
        then = last.get(m.name) if last is not None else None
        if then is None or then[0] != now:
            rows, kind = list(now.items()), NOW if m.kind == "gauge" else COUNTED
            about = m.help, m.labels, m.declared if isinstance(m, Histogram) else None, getattr(m, "same", getattr(m, "finer", False))
            then = now, [json.dumps((kind, m.name, about, rows[i : i + PIECE])) for i in range(0, len(rows), PIECE)]
            if last is not None:
                last[m.name] = then
        lines += then[1]
    return "\n".join(lines).encode()


def merged_families(read: Read, others: Iterable[bytes], shown: Shown, reset: bytes = b"") -> Iterator[tuple[Metric, dict[Labels, Any]]]:
    """Yields the exposed metrics by name with their values: those that were read, merged with the dumps of other workers. From counted
    metrics, the values in ``reset`` (made by ``total``) are subtracted.
    """
    metrics, merged = _merged(read, others)
    for _, name, _, rows in _pieces(reset):
        if name in merged:
            merged[name] = _later(merged[name], rows)
    for name, (same_as, since, help) in HIDDEN.items() if shown.hidden else ():
        if same_as in metrics:
            metrics[name], merged[name] = copy(metrics[same_as]), merged[same_as]
            metrics[name].name, metrics[name].help = name, f"(Deprecated since {since}) {help}"
    unexpected = 0.0
    for name in merged.keys() & shown.allowed.keys() - shown.disabled:
        merged[name], times = _constrained(metrics[name], merged[name], shown.allowed[name])
        unexpected += times
    if UNEXPECTED_TOTAL in merged:
        merged[UNEXPECTED_TOTAL] = {(): unexpected}
    for name in sorted(merged.keys() - shown.disabled):
        if values := merged[name] or _begun(metrics[name]):
            yield metrics[name], values


def exposed(families: Iterable[tuple[Metric, dict[Labels, Any]]]) -> bytes:
    """Prometheus' text format of the result of ``merged_families``."""
    lines: list[str] = []
    for metric, values in families:
        _expose(metric, values, lines)
    return ("\n".join(lines) + "\n").encode()


def total(read: Read, others: Iterable[bytes]) -> bytes:
    """A dump of what all workers have counted in metrics that have labels: a reset of upstream's registry restarts those."""
    metrics, merged = _merged(read, others)
    vectors = [m for m in metrics.values() if m.labels and m.kind != "gauge"]
    return dumped([(m, merged[m.name], {}) for m in vectors])


def _merged(read: Read, others: Iterable[bytes]) -> tuple[dict[str, Metric], dict[str, dict[Labels, Any]]]:
    metrics = {m.name: m for m, _, _ in read}
    merged = {m.name: _counted(values, before) for m, values, before in read}
    for raw in others:
        for kind, name, about, rows in _pieces(raw):
            if name not in metrics:
                metrics[name] = _made(kind, name, about)
            into, same = merged.setdefault(name, {}), getattr(metrics[name], "same", False)
            for k, v in rows:
                _merge(into, k, v, same)
    return metrics, merged


def _later(values: dict[Labels, Any], rows: list[tuple[Labels, Any]]) -> dict[Labels, Any]:
    """``values`` minus ``rows``, without children that become zero. Children that were dropped in the meantime have started anew."""
    out, before = dict(values), dict(rows)
    for key in before.keys() & values.keys():
        now, then = values[key], before[key]
        left = [max(a - b, 0) for a, b in zip(now, then, strict=True)] if isinstance(now, list) else max(now - then, 0)
        if any(left[:-1]) if isinstance(left, list) else left:
            out[key] = left
        else:
            del out[key]
    return out


def _begun(m: Metric) -> dict[Labels, Any]:
    """What is exposed before anything was counted. A counter or histogram without labels is present from the start, as in Prometheus'
    libraries, so that its first increment is visible. The labels of others are not known yet.
    """
    if m.labels or m.kind == "gauge":
        return {}
    return {(): [0] * (len(m.buckets) + 2) if isinstance(m, Histogram) else 0}


def _pieces(raw: bytes) -> Iterator[tuple[str, str, About, list[tuple[Labels, Any]]]]:
    """Parses a dump: yields (COUNTED or NOW, metric name, its description, some of its children)."""
    for line in raw.splitlines():
        kind, name, about, rows = json.loads(line)
        yield kind, name, about, [(tuple(k), v) for k, v in rows]


def _made(kind: str, name: str, about: About) -> Metric:
    """A metric without children, made from its description in a dump."""
    help, labels, declared, same = about
    if declared is not None:
        return Histogram(name, help, tuple(labels), declared, finer=same)
    return Gauge(name, help, tuple(labels), same=same) if kind == NOW else Counter(name, help, tuple(labels))


def _counted(values: dict[Labels, Any], before: dict[Labels, Any]) -> dict[Labels, Any]:
    """The sum of what this worker and its predecessor counted."""
    if not before:
        return values
    out = dict(before)
    for key, value in values.items():
        _merge(out, key, value, False)
    return out


def dump_path(run_dir: Path, name: str, index: int) -> Path:
    """The path of the dump of registry ``name`` (one of ``DUMPED``) by the worker number ``index``."""
    return run_dir / f"{name}-{index}.json"


def reset_path(run_dir: Path, name: str) -> Path:
    """The path of the ``total`` of registry ``name`` at its last reset."""
    return run_dir / f"{name}.reset"


def drop_gauges(run_dir: Path, index: int) -> None:
    """Removes the gauges from the dumps of a worker that has ended; its counters and histograms stay. Raises ``OSError``."""
    for name in DUMPED:
        path = dump_path(run_dir, name, index)
        with contextlib.suppress(FileNotFoundError):  # it had not dumped anything yet
            lines = path.read_bytes().splitlines()
            new = path.with_suffix(".new")
            new.write_bytes(b"\n".join(line for line in lines if json.loads(line)[0] == COUNTED))
            os.replace(new, path)


def _named(name: str) -> Of:
    """(group, resource) of "resource.group"."""
    resource, _, group = name.partition(".")
    return group, resource


def _merge(into: dict[Labels, Any], key: Labels, value: Any, same: bool) -> None:
    """Merges a child's ``value``: adds it, or keeps the larger one when both are about the ``same`` thing."""
    have = into.get(key)
    if isinstance(value, list):
        into[key] = [a + b for a, b in zip(have, value, strict=True)] if have else value
    elif same:
        into[key] = max(have or 0, value)
    else:
        into[key] = (have or 0) + value


def _constrained(m: Metric, values: dict[Labels, Any], allowed: Mapping[str, Set[str]]) -> tuple[dict[Labels, Any], float]:
    """``values`` with disallowed label values replaced, and how often replaced ones were counted or observed (not known for gauges)."""
    out: dict[Labels, Any] = {}
    times = 0.0
    for key, value in values.items():
        pairs = zip(m.labels, key, strict=True)
        labels = tuple(v if k not in allowed or v in allowed[k] else UNEXPECTED for k, v in pairs)
        if labels != key and m.kind != "gauge":
            times += sum(map(operator.ne, labels, key)) * (sum(value[:-1]) if isinstance(value, list) else value)
        _merge(out, labels, value, getattr(m, "same", False))
    return out, times


def help_of(m: Metric) -> str:
    """The HELP text of a metric, with its stability level."""
    level = level_of(m.name)
    return f"[{level}] {m.help}" if level else m.help


def in_order(m: Metric, values: dict[Labels, Any]) -> tuple[Labels, dict[Labels, Any]]:
    """The labels sorted by name, as Prometheus' libraries write them (some clients match by pattern), and the values by these labels."""
    names = tuple(sorted(m.labels))
    if names != m.labels:
        values = {tuple(key[m.labels.index(name)] for name in names): v for key, v in values.items()}
    return names, values


def _expose(m: Metric, values: dict[Labels, Any], lines: list[str]) -> None:
    lines.append(f"# HELP {m.name} {help_of(m)}")
    lines.append(f"# TYPE {m.name} {m.kind}")
    names, values = in_order(m, values)
    for key in sorted(values):
        labels = ",".join(f'{k}="{_escape(v)}"' for k, v in zip(names, key, strict=True))
        v = values[key]
        if not isinstance(m, Histogram):
            lines.append(f"{m.name}{{{labels}}} {_number(v)}" if labels else f"{m.name} {_number(v)}")
            continue
        lead = labels + "," if labels else ""
        for bound, total in m.cumulative(v):
            lines.append(f'{m.name}_bucket{{{lead}le="{_number(bound)}"}} {_number(total)}')
        total = sum(v[:-1])
        lines.append(f'{m.name}_bucket{{{lead}le="+Inf"}} {_number(total)}')
        tail = f"{{{labels}}}" if labels else ""
        lines.append(f"{m.name}_sum{tail} {_number(v[-1])}")
        lines.append(f"{m.name}_count{tail} {_number(total)}")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(v: float) -> str:
    """``v`` formatted as in Go: with an exponent from a million on. Bounds are label values, which are compared as text."""
    if -1e6 < v < 1e6:
        return str(int(v)) if v == int(v) else repr(v)
    whole, _, part = repr(float(v)).partition(".")
    if not whole.lstrip("-").isdigit() or "e" in part:
        return repr(float(v)).replace("inf", "+Inf")  # Python uses an exponent from 1e16 on
    sign, digits = ("-", whole[1:]) if whole[0] == "-" else ("", whole)
    shown = (digits + part).rstrip("0")
    return f"{sign}{shown[0]}{'.' if shown[1:] else ''}{shown[1:]}e+{len(digits) - 1:02d}"
