"""``process_*``: what Prometheus' clients tell of their process, here of all workers together."""

from __future__ import annotations

import os
import resource
import time

from kas.observe.metrics import Registry
from kas.observe.process import age_s

PAGE = os.sysconf("SC_PAGESIZE")


class ProcessMetrics:
    """Seconds of processor time, bytes of memory and descriptors are added up; the start is that of the worker that answers."""

    def __init__(self, registry: Registry) -> None:
        self._cpu = registry.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
        self._resident = registry.gauge("process_resident_memory_bytes", "Resident memory size in bytes.")
        self._virtual = registry.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")
        self._open = registry.gauge("process_open_fds", "Number of open file descriptors.")
        self._most = registry.gauge("process_max_fds", "Maximum number of open file descriptors.")
        self._began = registry.gauge(
            "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", shared=False
        )
        self._start = time.time() - age_s()
        registry.collectors.append(self.collect)

    def collect(self) -> None:
        """Looks at the process now."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu.values[()] = used.ru_utime + used.ru_stime
        with open("/proc/self/statm") as f:
            virtual, resident, *_ = map(int, f.read().split())
        self._virtual.set((), virtual * PAGE)
        self._resident.set((), resident * PAGE)
        self._open.set((), len(os.listdir("/proc/self/fd")) - 1)
        self._most.set((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._began.set((), self._start)
