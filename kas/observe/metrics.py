"""Counters, gauges and histograms, kept as plain dictionaries and written in Prometheus' text format.

The hot path adds to a dictionary and never formats. Every worker keeps its own; ``Registry.dump`` is written to the run
directory now and then and merged by whichever worker is asked for /metrics, so an answer covers all of them (the other
workers' numbers are at most a second old). A worker in the place of one that died goes on with what that one had counted: a sum that
fell would be a counter that began anew, and all of it counted twice (Prometheus' ``rate``). Its gauges end with it (``bury``). Names,
labels and buckets are upstream's.
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
# Upstream's buckets for how long deciding about a request takes.
ATTEMPT_SECONDS = tuple(0.001 * 2**i for i in range(15))
DUMPED = ("metrics", "slis")  # the registries of a worker
PIECE = 500  # children that are read or written in one call: others have the interpreter's lock, or the loop, between calls
# Brings metrics up to date. What has many children to look at does it in the steps of an iterator, between which others count on.
Collect = Callable[[], Iterator[None] | None]
About = tuple[str, Iterable[str], Iterable[float] | None, bool]  # help, labels, buckets, and whether they are finer or tell of the same
Read = list[tuple["Metric", dict[Labels, Any], dict[Labels, Any]]]  # a metric, its values and those of the worker before this one

Said = dict[str, tuple[dict[Labels, Any], list[str]]]  # by metric its values, and the lines that tell them


class Counter:
    """Grows only; those of all workers are added up, unless not ``shared``. ``inc`` takes the label values in the order of ``labels``."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Labels = (), shared: bool = True) -> None:
        self.name, self.help, self.labels, self.shared = name, help, labels, shared
        self.values: dict[Labels, float] = {}

    def inc(self, values: Labels = (), by: float = 1) -> None:
        """Add to the child with these label values, which are in the order of the labels."""
        v = self.values
        v[values] = v.get(values, 0) + by


class Gauge(Counter):
    """Goes up and down. What workers say of the ``same`` thing is not added up: the most that one says counts."""

    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Labels = (), shared: bool = True, same: bool = False) -> None:
        super().__init__(name, help, labels, shared)
        self.same = same

    def set(self, values: Labels, to: float) -> None:
        """Set the child with these label values, which are in the order of the labels."""
        self.values[values] = to


def row_of(buckets: int) -> array[float]:
    """A child of a histogram of so many. Numbers and no objects: one that is made anew with each observation lies wherever the memory of
    the moment is, and of what thousands of watches took a megabyte stays for each."""
    return array("d", bytes(8 * (buckets + 2)))


class Histogram:
    """Cumulative buckets; ``observe`` is one bisect and one addition. ``declared`` are the bounds that are shown, ``buckets`` those that
    rows have: more where there is a native form, which one that is not ``finer`` has not."""

    kind, shared = "histogram", True

    def __init__(self, name: str, help: str, labels: Labels, buckets: Iterable[float], finer: bool = True) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.declared, self.finer = tuple(buckets), finer
        # label values -> count per bucket…, above the last, sum; see ``row_of``
        self.values: dict[Labels, array[float]] = {}

    @cached_property
    def buckets(self) -> tuple[float, ...]:
        """Known once the gates are: some are made when the program is loaded."""
        return bounds_of(self.declared) if self.finer else self.declared

    @property
    def native(self) -> bool:
        """Whether its rows can be told in the native form, too."""
        return len(self.buckets) > len(self.declared)

    def cumulative(self, row: Sequence[float]) -> Iterator[tuple[float, float]]:
        """The bounds that are shown, and how much of a row is not above each."""
        total, shown = 0.0, set(self.declared)
        for bound, count in zip(self.buckets, row, strict=False):
            total += count
            if bound in shown:
                yield bound, total

    def observe(self, values: Labels, amount: float) -> None:
        """Count ``amount`` in the one bucket it falls into, and add it to the sum."""
        row = self.values.get(values)
        if row is None:
            row = self.values[values] = row_of(len(self.buckets))
        row[bisect.bisect_left(self.buckets, amount)] += 1
        row[-1] += amount


class Observations:
    """A counter of a histogram's observations: what has both under two names is counted once, and the second costs nothing."""

    kind, shared = "counter", True

    def __init__(self, name: str, help: str, histogram: Histogram) -> None:
        self.name, self.help, self.labels, self._histogram = name, help, histogram.labels, histogram

    @property
    def values(self) -> dict[Labels, float]:
        """How many observations each child of the histogram has."""
        return {labels: int(sum(row[:-1])) for labels, row in self._histogram.values.items()}


Metric = Counter | Gauge | Histogram | Observations
UNEXPECTED = "unexpected"  # shown instead of a label's value that is not among those allowed
UNEXPECTED_TOTAL = "cardinality_enforcement_unexpected_categorizations_total"  # how often it was, where there is this counter


class Shown(NamedTuple):
    """What of the metrics is shown: none of the ``disabled``; ``allowed`` has, by metric and label, the values that the label may have;
    with ``hidden`` those that are deprecated for so long that they are hidden."""

    disabled: Set[str] = frozenset()
    allowed: Mapping[str, Mapping[str, Set[str]]] = {}
    hidden: bool = False


EVERYTHING = Shown()


class Registry:
    """All metrics of one worker. ``collectors`` refresh them just before they are read; ``own_collectors`` those that are not shared, which
    nobody reads in a dump; ``droppers`` are told of resources that are no more, for what ``collectors`` read."""

    def __init__(self, shown: Shown = EVERYTHING) -> None:
        self.shown = shown
        self.metrics: dict[str, Metric] = {}
        self.collectors: list[Collect] = []
        self.own_collectors: list[Collect] = []
        self.droppers: list[Callable[[Set[Of]], None]] = []
        self._gone: set[Of] = set()
        self._before: dict[str, dict[Labels, Any]] = {}  # what the worker before this one had counted
        self._resumed: dict[str, Metric] = {}  # its metrics, for those that are not yet among this one's

    def resume(self, dumped: bytes) -> None:
        """Counters and histograms go on from what another worker, which is no more, gave as its ``dump``."""
        self._before = {}
        for kind, name, about, rows in _pieces(dumped):
            if kind == COUNTED:
                self._before.setdefault(name, {}).update(rows)
                self._resumed[name] = _made(kind, name, about)

    def _known(self) -> list[Metric]:
        """All metrics there are: some are made when they are needed first, and the worker before this one may have needed them."""
        return [*self.metrics.values(), *(m for name, m in self._resumed.items() if name not in self.metrics)]

    def read(self, collected: bool = False, own: bool = False) -> Read:
        """The values of now, as nobody changes them any more, for ``dumped`` and ``told``: these take long where there are many, and may
        be called in any thread. With ``collected`` nothing is brought up to date; with ``own`` what is not shared is."""
        out: Read = []
        for _ in self._reading(out, collected, own):
            pass
        return out

    async def paced(self, collected: bool = False, own: bool = False) -> Read:
        """As ``read``, while others have their turns of the loop."""
        out: Read = []
        time_slice = TimeSlice()
        with contextlib.closing(self._reading(out, collected, own)) as steps:
            for _ in steps:
                if time_slice.over:
                    await time_slice.pause()
        return out

    def _reading(self, out: Read, collected: bool, own: bool) -> Generator[None, None, None]:
        """The steps of ``read``."""
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
        """``metric``, or the one that has its name already: parts made twice count together."""
        return self.metrics.setdefault(metric.name, metric)

    def counter(self, name: str, help: str, labels: Labels = ()) -> Counter:
        """Add a counter, or give the metric that has the name already; ``labels`` are the labels' names in their order."""
        return self.add(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: Labels = (), shared: bool = True, same: bool = False) -> Gauge:
        """Add a gauge, or give the metric that has the name already; of one that is not ``shared`` each process tells its own, of one
        that is about the ``same`` in all the highest counts."""
        return self.add(Gauge(name, help, labels, shared, same))

    def histogram(self, name: str, help: str, labels: Labels, buckets: Iterable[float], finer: bool = True) -> Histogram:
        """Add a histogram, or give the metric that has the name already; ``buckets`` are ascending upper bounds without the infinite one.
        Whose rows somebody else counts, in these buckets alone, is not ``finer``."""
        return self.add(Histogram(name, help, labels, buckets, finer))

    def observations(self, name: str, help: str, histogram: Histogram) -> Observations:
        """Add a counter of a histogram's observations, or give the one that has the name already."""
        return self.add(Observations(name, help, histogram))

    def forget(self, group: str, resource: str) -> None:
        """A resource is no more: its children go before the next reading, else definitions that come and go would make series without end.
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
        except GeneratorExit:  # who has asked has left
            self._gone |= gone
            raise

    def _drop(self, m: Metric, gone: Set[Of]) -> None:
        at = m.labels.index("resource")
        of = m.labels.index("group") if "group" in m.labels else None
        for key in [k for k in m.values if (_named(k[at]) if of is None else (k[of], k[at])) in gone]:
            del m.values[key]
        before = self._before.get(m.name, {})  # somebody may be reading it
        kept = {k: v for k, v in before.items() if (_named(k[at]) if of is None else (k[of], k[at])) not in gone}
        if len(kept) < len(before):
            self._before[m.name] = kept

    def gauge_value(self, name: str, values: Labels, to: float) -> None:
        """Sets a gauge declared with ``gauge``."""
        self.metrics[name].values[values] = to  # type: ignore[assignment]

    def dump(self) -> bytes:
        """This worker's numbers, for another worker to merge."""
        return dumped(self.read())

    def expose(self, others: Iterable[bytes] = (), collected: bool = False) -> bytes:
        """Prometheus' text format of this worker's numbers plus ``others`` (what their ``dump`` gave). ``collected``: as ``dump`` has just
        told them, so that nothing is shown that would be lost with this worker."""
        return exposed(told(self.read(collected, own=True), others, self.shown))


COUNTED, NOW = "counted", "now"


def dumped(read: Read, said: Said | None = None) -> bytes:
    """What a worker tells the others: a line of JSON for some children of a metric each, and what that is, since they may not have it.
    ``said`` is what it told last, and is brought up to date: within a second few metrics change."""
    lines: list[str] = []
    for m, values, before in read:
        if not m.shared:
            continue
        now = _counted(values, before)
        then = said.get(m.name) if said is not None else None
        if then is None or then[0] != now:
            rows, kind = list(now.items()), NOW if m.kind == "gauge" else COUNTED
            about = m.help, m.labels, m.declared if isinstance(m, Histogram) else None, getattr(m, "same", getattr(m, "finer", False))
            then = now, [json.dumps((kind, m.name, about, rows[i : i + PIECE])) for i in range(0, len(rows), PIECE)]
            if said is not None:
                said[m.name] = then
        lines += then[1]
    return "\n".join(lines).encode()


def told(read: Read, others: Iterable[bytes], shown: Shown, reset: bytes = b"") -> Iterator[tuple[Metric, dict[Labels, Any]]]:
    """The metrics that are shown, by name, with their values: those that were read, and those that others have ``dumped``; of what counts
    only what was not yet in ``reset``, which ``total`` gave."""
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
    """Prometheus' text format of what is ``told``."""
    lines: list[str] = []
    for metric, values in families:
        _expose(metric, values, lines)
    return ("\n".join(lines) + "\n").encode()


def total(read: Read, others: Iterable[bytes]) -> bytes:
    """What all workers have counted so far in children that have labels: upstream's registry begins those anew when it is reset."""
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
    """``values`` without what ``rows`` say, and without the children that have nothing else. What was dropped since began anew."""
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
    """What is shown before anything was counted: a child without labels is there from the start, as in Prometheus' libraries, so that the
    first thing it counts is seen as one more; of others nobody knows the labels."""
    if m.labels or m.kind == "gauge":
        return {}
    return {(): [0] * (len(m.buckets) + 2) if isinstance(m, Histogram) else 0}


def _pieces(raw: bytes) -> Iterator[tuple[str, str, About, list[tuple[Labels, Any]]]]:
    """What was ``dumped``: whether it was counted or is about now, of which metric, what that is, and some of its children."""
    for line in raw.splitlines():
        kind, name, about, rows = json.loads(line)
        yield kind, name, about, [(tuple(k), v) for k, v in rows]


def _made(kind: str, name: str, about: About) -> Metric:
    """The metric that ``dumped`` told of, without children."""
    help, labels, declared, same = about
    if declared is not None:
        return Histogram(name, help, tuple(labels), declared, finer=same)
    return Gauge(name, help, tuple(labels), same=same) if kind == NOW else Counter(name, help, tuple(labels))


def _counted(values: dict[Labels, Any], before: dict[Labels, Any]) -> dict[Labels, Any]:
    """What this worker counted and the one before it."""
    if not before:
        return values
    out = dict(before)
    for key, value in values.items():
        _merge(out, key, value, False)
    return out


def dump_path(run_dir: Path, name: str, index: int) -> Path:
    """Where the worker with the number ``index`` leaves the dump of its registry ``name``, one of ``DUMPED``."""
    return run_dir / f"{name}-{index}.json"


def reset_path(run_dir: Path, name: str) -> Path:
    """Where the ``total`` of the registry ``name`` is as it was when it was reset."""
    return run_dir / f"{name}.reset"


def bury(run_dir: Path, index: int) -> None:
    """Take the gauges from what a worker that is no more left: nothing is open in it. What it counted stays. Raises ``OSError``."""
    for name in DUMPED:
        path = dump_path(run_dir, name, index)
        with contextlib.suppress(FileNotFoundError):  # it had told nothing yet
            lines = path.read_bytes().splitlines()
            new = path.with_suffix(".new")
            new.write_bytes(b"\n".join(line for line in lines if json.loads(line)[0] == COUNTED))
            os.replace(new, path)


def _named(name: str) -> Of:
    """The resource that "resource.group" names."""
    resource, _, group = name.partition(".")
    return group, resource


def _merge(into: dict[Labels, Any], key: Labels, value: Any, same: bool) -> None:
    """Add a child's ``value``, or keep the larger one when both are about the ``same``."""
    have = into.get(key)
    if isinstance(value, list):
        into[key] = [a + b for a, b in zip(have, value, strict=True)] if have else value
    elif same:
        into[key] = max(have or 0, value)
    else:
        into[key] = (have or 0) + value


def _constrained(m: Metric, values: dict[Labels, Any], allowed: Mapping[str, Set[str]]) -> tuple[dict[Labels, Any], float]:
    """``values`` with the labels that are allowed, and how often others were counted or observed; of gauges that is not known."""
    out: dict[Labels, Any] = {}
    times = 0.0
    for key, value in values.items():
        pairs = zip(m.labels, key, strict=True)
        told = tuple(v if k not in allowed or v in allowed[k] else UNEXPECTED for k, v in pairs)
        if told != key and m.kind != "gauge":
            times += sum(map(operator.ne, told, key)) * (sum(value[:-1]) if isinstance(value, list) else value)
        _merge(out, told, value, getattr(m, "same", False))
    return out, times


def help_of(m: Metric) -> str:
    """What a metric is about, and how stable it is."""
    level = level_of(m.name)
    return f"[{level}] {m.help}" if level else m.help


def in_order(m: Metric, values: dict[Labels, Any]) -> tuple[Labels, dict[Labels, Any]]:
    """Labels by name, as Prometheus' libraries write them, and the values by those: some read them by pattern."""
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
    """As Go writes it: from a million on with an exponent. Bounds are values of labels, and those are compared as text."""
    if -1e6 < v < 1e6:
        return str(int(v)) if v == int(v) else repr(v)
    whole, _, part = repr(float(v)).partition(".")
    if not whole.lstrip("-").isdigit() or "e" in part:
        return repr(float(v)).replace("inf", "+Inf")  # Python does so from 1e16 on
    sign, digits = ("-", whole[1:]) if whole[0] == "-" else ("", whole)
    shown = (digits + part).rstrip("0")
    return f"{sign}{shown[0]}{'.' if shown[1:] else ''}{shown[1:]}e+{len(digits) - 1:02d}"
