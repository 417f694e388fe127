"""Flow control's metrics under upstream's names (apiserver's ``util/flowcontrol/metrics``).

Gauges of levels and everything that is sampled are reported by worker 0 for all workers; counts of requests are
reported by each worker and added up. Utilizations are sampled when the metrics are collected, about once a second,
where upstream observes each change: their averages and quantiles mean the same, their counts do not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from kas.flowcontrol._engine import DURATION_BUCKETS, LENGTH_BUCKETS, SEAT_BUCKETS, Stats
from kas.observe.metrics import Registry

if TYPE_CHECKING:
    from kas.flowcontrol.controller import FlowControl

PREFIX = "apiserver_flowcontrol_"
FLOW = ("flow_schema", "priority_level")
LEVEL = ("priority_level",)
# Fractions of a limit: wanted seats may exceed it, requests cannot.
DEMANDS = (0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6)
REQUESTS = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1)
KINDS = (0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
LEVELS = 64  # levels reported in one step
PARTS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)

LEVEL_GAUGES = {
    "nominal_limit_seats": "Nominal number of execution seats configured for each priority level",
    "lower_limit_seats": "Configured lower bound on number of execution seats available to each priority level",
    "upper_limit_seats": "Configured upper bound on number of execution seats available to each priority level",
    "current_limit_seats": "current derived number of execution seats available to each priority level",
    "demand_seats_high_watermark": "High watermark, over last adjustment period, of demand_seats",
    "demand_seats_average": "Time-weighted average, over last adjustment period, of demand_seats",
    "demand_seats_stdev": "Time-weighted standard deviation, over last adjustment period, of demand_seats",
    "demand_seats_smoothed": "Smoothed seat demands",
    "target_seats": "Seat allocation targets",
}
FLOW_GAUGES = {
    "current_executing_requests": "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API "
    "Priority and Fairness subsystem",
    "current_executing_seats": "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage "
    "otherwise) requests in the API Priority and Fairness subsystem",
    "current_inqueue_requests": "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
    "current_inqueue_seats": "Number of seats currently pending in queues of the API Priority and Fairness subsystem",
}


class FlowMetrics:
    """Collects the metrics of a worker's flow control."""

    def __init__(self, registry: Registry, control: FlowControl) -> None:
        self._registry, self._control = registry, control
        self._told: dict[tuple[str, str], tuple[Stats, int, int, int, dict[str, int]]] = {}  # by labels: what was reported last
        counter, gauge = registry.counter, registry.gauge
        histogram = partial(registry.histogram, finer=False)  # the engine counts
        self._in_flight = gauge(
            "apiserver_current_inflight_requests",
            "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.", ("request_kind",),
        )  # fmt: skip
        self._in_queue = gauge(
            "apiserver_current_inqueue_requests",
            "Maximal number of queued requests in this apiserver per request kind in last second.", ("request_kind",),
        )  # fmt: skip
        self._dispatched = counter(PREFIX + "dispatched_requests_total",
                                   "Number of requests executed by API Priority and Fairness subsystem", FLOW)  # fmt: skip
        self._rejected = counter(PREFIX + "rejected_requests_total", "Number of requests rejected by API Priority and Fairness subsystem",
                                 (*FLOW, "reason"))  # fmt: skip
        self._ran = histogram(PREFIX + "request_execution_seconds",
                              "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API "
                              "Priority and Fairness subsystem", (*FLOW, "type"), DURATION_BUCKETS)  # fmt: skip
        self._waited = histogram(PREFIX + "request_wait_duration_seconds", "Length of time a request spent waiting in its queue",
                                 ("execute", *FLOW), DURATION_BUCKETS)  # fmt: skip
        self._work = histogram(PREFIX + "work_estimated_seats",
                               "Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority "
                               "and Fairness", FLOW, SEAT_BUCKETS)  # fmt: skip
        self._lengths = histogram(PREFIX + "request_queue_length_after_enqueue",
                                  "Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is "
                                  "enqueued", FLOW, LENGTH_BUCKETS)  # fmt: skip
        for name, text in FLOW_GAUGES.items():
            gauge(PREFIX + name, text, FLOW)
        for name, text in LEVEL_GAUGES.items():
            gauge(PREFIX + name, text, LEVEL)
        gauge(PREFIX + "seat_fair_frac",
              "Fair fraction of server's concurrency to allocate to each priority level that can use it")  # fmt: skip
        self._demand = histogram(PREFIX + "demand_seats", "Observations, about once a second, of (the number of seats each priority level "
                                 "could use) / (nominal number of seats for that level)", LEVEL, DEMANDS)  # fmt: skip
        self._seats = histogram(PREFIX + "priority_level_seat_utilization", "Observations, about once a second, of utilization of seats "
                                "for any stage of execution (but only initial stage for WATCHes)", ("phase", *LEVEL), PARTS)  # fmt: skip
        self._requests = histogram(PREFIX + "priority_level_request_utilization", "Observations, about once a second, of number of "
                                   "requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial "
                                   "stage for WATCHes)", ("phase", *LEVEL), REQUESTS)  # fmt: skip
        self._kinds = histogram(PREFIX + "read_vs_write_current_requests", "Observations, about once a second, of the number of requests "
                                "(as a fraction of the relevant limit) waiting or in regular stage of execution", ("phase", "request_kind"),
                                KINDS)  # fmt: skip
        self._levels: list[str] = []  # the levels that were reported last
        registry.collectors.append(self.collect)

    def collect(self) -> Iterator[None]:
        """Brings the registry up to date with the engine's counts, in steps, because there may be thousands of levels."""
        control, gate = self._control, self._control.gate
        for gauge, reads, writes in (
            (self._in_flight, gate.reading, gate.writing), (self._in_queue, gate.queued_reads, gate.queued_writes),
        ):  # fmt: skip
            gauge.set(("readOnly",), reads)
            gauge.set(("mutating",), writes)
        for phase, reads, writes in (
            ("executing", gate.reading, gate.writing), ("waiting", gate.queued_reads, gate.queued_writes),
        ):  # fmt: skip
            for kind, n in (("readOnly", reads), ("mutating", writes)):
                self._kinds.observe((phase, kind), n / control.server_limit)
        self._collect_flows()
        yield
        if control.first:
            yield from self._collect_levels()

    def _collect_flows(self) -> None:
        """Reports the schemas that have counted something since the last time. There may be thousands of others."""
        gauges, there, told = self._registry.gauge_value, self._control.stats, self._told
        for labels in told.keys() - there.keys():
            self._forget(labels)  # a deleted schema is no longer reported
        for labels, s in there.items():
            if not (s.dispatched or s.rejected or s.executing or s.waiting):
                continue
            counted = s, s.dispatched, s.executing, s.waiting, dict(s.rejected)
            before = told.get(labels)
            if before == counted and not s.executing and not s.waiting:
                continue
            if before is not None and before[0] is not s:
                self._forget(labels)  # recreated
            told[labels] = counted
            gauges(PREFIX + "current_executing_requests", labels, s.executing)
            gauges(PREFIX + "current_executing_seats", labels, s.seats)
            gauges(PREFIX + "current_inqueue_requests", labels, s.waiting)
            gauges(PREFIX + "current_inqueue_seats", labels, s.wanted)
            for reason, n in s.rejected.items():
                self._rejected.values[(*labels, reason)] = n
            if not s.dispatched and not s.rejected:
                continue
            self._dispatched.values[labels] = s.dispatched
            for watch, kind in ((False, "regular"), (True, "watch")):
                self._ran.values[(*labels, kind)] = array("d", s.execution(watch))
            for executed, text in ((True, "true"), (False, "false")):
                self._waited.values[(text, *labels)] = array("d", s.wait(executed))
            self._work.values[labels] = array("d", s.work())
            self._lengths.values[labels] = array("d", s.queue_lengths())

    def _forget(self, labels: tuple[str, str]) -> None:
        _, *_, rejected = self._told.pop(labels)
        for name in FLOW_GAUGES:
            self._registry.metrics[PREFIX + name].values.pop(labels, None)
        for family in (self._dispatched, self._work, self._lengths):
            family.values.pop(labels, None)
        for kind in ("regular", "watch"):
            self._ran.values.pop((*labels, kind), None)
        for text in ("true", "false"):
            self._waited.values.pop((text, *labels), None)
        for reason in rejected:
            self._rejected.values.pop((*labels, reason), None)

    def _collect_levels(self) -> Iterator[None]:
        control, gauges = self._control, self._registry.gauge_value
        for gone in [name for name in self._levels if name not in control.levels]:
            for gauge in LEVEL_GAUGES:
                self._registry.metrics[PREFIX + gauge].values.pop((gone,), None)
        self._levels = list(control.levels)
        gauges(PREFIX + "seat_fair_frac", (), control.fair_fraction)
        for i, name in enumerate(self._levels):
            if i % LEVELS == LEVELS - 1:
                yield
            level = control.levels.get(name)
            if level is None:  # deleted since
                continue
            nominal, demand = control.nominal[name], control.demands.get(name)
            told: dict[str, float] = {
                "nominal_limit_seats": nominal.nominal, "lower_limit_seats": nominal.lower, "upper_limit_seats": nominal.upper,
                "current_limit_seats": level.limit,
            }  # fmt: skip
            if demand is not None:
                told |= {"demand_seats_high_watermark": demand.highest, "demand_seats_average": demand.average,
                         "demand_seats_stdev": demand.deviation, "demand_seats_smoothed": demand.smoothed}  # fmt: skip
            if name in control.targets:
                told["target_seats"] = control.targets[name]
            else:
                self._registry.metrics[PREFIX + "target_seats"].values.pop((name,), None)
            for what, value in told.items():
                gauges(PREFIX + what, (name,), value)
            seats, executing, waiting, wanted, _ = level.totals()
            self._demand.observe((name,), (seats + wanted) / max(1, nominal.nominal))
            if level.exempt:
                continue
            self._seats.observe(("executing", name), seats / max(1, level.limit))
            self._requests.observe(("executing", name), executing / max(1, level.limit))
            if level.queued:
                self._requests.observe(("waiting", name), waiting / max(1, level.queues * level.length_limit))
