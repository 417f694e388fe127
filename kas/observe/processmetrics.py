"""The ``process_*`` metrics of Prometheus' client libraries, for all workers together."""

from __future__ import annotations

import os
import resource
import time

from kas.observe.metrics import Counter, Registry
from kas.observe.process import age_s

PAGE = os.sysconf("SC_PAGESIZE")
NETWORK = "/proc/self/net/netstat"  # of the whole network namespace: the kernel does not count per process
_UNLIMITED = float(1 << 64)  # as the Go client reports "unlimited"


class ProcessMetrics:
    """Processor time, memory and descriptors are summed over the workers; the start time is that of the worker that answers. Network bytes
    are those of the network namespace, as in the Go client.
    """

    def __init__(self, registry: Registry) -> None:
        self._cpu = registry.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
        self._resident = registry.gauge("process_resident_memory_bytes", "Resident memory size in bytes.")
        self._virtual = registry.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")
        bound = registry.gauge("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", same=True)
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        bound.set((), _UNLIMITED if limit == resource.RLIM_INFINITY else limit)
        self._open = registry.gauge("process_open_fds", "Number of open file descriptors.")
        self._most = registry.gauge("process_max_fds", "Maximum number of open file descriptors.")
        self._began = registry.gauge(
            "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", shared=False
        )
        self._start = time.time() - age_s()
        registry.collectors.append(self.collect)
        about = "Number of bytes {} by the process over the network."
        self._received = registry.add(Counter("process_network_receive_bytes_total", about.format("received"), shared=False))
        self._sent = registry.add(Counter("process_network_transmit_bytes_total", about.format("sent"), shared=False))
        registry.own_collectors.append(self._network)

    def collect(self) -> None:
        """Refreshes the metrics from the state of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu.values[()] = used.ru_utime + used.ru_stime
        with open("/proc/self/statm") as f:
            virtual, resident, *_ = map(int, f.read().split())
        self._virtual.set((), virtual * PAGE)
        self._resident.set((), resident * PAGE)
        self._open.set((), len(os.listdir("/proc/self/fd")) - 1)
        self._most.set((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._began.set((), self._start)

    def _network(self) -> None:
        try:
            with open(NETWORK) as f:
                found = octets(f.read())
        except OSError:  # a sandbox without it: the metrics are omitted, as in the Go client
            found = None
        if found is not None:
            self._received.values[()], self._sent.values[()] = found


def octets(netstat: str) -> tuple[int, int] | None:
    """(bytes received, bytes sent) from the text of /proc/net/netstat, which has pairs of lines: names, then numbers. None where these are
    missing.
    """
    lines = netstat.splitlines()
    for names, numbers in zip(lines[::2], lines[1::2], strict=False):
        if names.startswith("IpExt:"):
            values = dict(zip(names.split(), numbers.split(), strict=False))
            return (int(values["InOctets"]), int(values["OutOctets"])) if "InOctets" in values and "OutOctets" in values else None
    return None
