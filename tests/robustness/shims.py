"""Faults of a machine that affect one process: a disk that syncs slowly or fails to sync, a clock that jumps."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

from tests import prerequisites

PR_SET_NO_NEW_PRIVS, SECCOMP_SET_MODE_FILTER, FILTER_FLAG_NEW_LISTENER = 38, 1, 8
NOTIF_RECV, NOTIF_SEND, NOTIF_CONTINUE = 0xC0502100, 0xC0182101, 1  # linux/seccomp.h
RET_USER_NOTIF, RET_ALLOW = 0x7FC00000, 0x7FFF0000
# The numbers of seccomp, fsync and fdatasync.
CALLS = {"x86_64": (317, 74, 75), "aarch64": (277, 82, 83)}


class SlowDisk:
    """A process started with ``before`` (a ``preexec_fn``) waits ``wait_s`` at each sync of a file, and then gets ``error``, an errno, if
    there is one. Seccomp notifies of each call and lets it continue later: this needs no root and no library, and works for programs that
    call the kernel directly. Linux from 5.5 on."""

    def __init__(self) -> None:
        self.wait_s, self.error = 0.0, 0
        self._ours, self._theirs = socket.socketpair()

    def before(self) -> None:
        """Runs in the new process, before its program: from now on its calls are intercepted."""
        number, *syncs = CALLS[platform.machine()]
        load, jump, ret = 0x20, 0x15, 0x06  # BPF: a word, a jump if equal, an end
        code = [(load, 0, 0, 0), (jump, 1, 0, syncs[0]), (jump, 0, 1, syncs[1]), (ret, 0, 0, RET_USER_NOTIF), (ret, 0, 0, RET_ALLOW)]
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
        described = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
        told = libc.syscall(number, SECCOMP_SET_MODE_FILTER, FILTER_FLAG_NEW_LISTENER, described)
        if told < 0:
            raise OSError(ctypes.get_errno(), "seccomp")
        socket.send_fds(self._theirs, [b"!"], [told])
        os.close(told)

    def watch(self) -> None:
        """To be called once after each process that was started with ``before``."""
        _, (told,), _, _ = socket.recv_fds(self._ours, 1, 1)
        threading.Thread(target=self._serve, args=(told,), daemon=True).start()

    def _serve(self, told: int) -> None:
        poll = select.poll()
        poll.register(told, select.POLLIN)
        while True:
            [(_, events)] = poll.poll() or [(0, 0)]
            if not events & select.POLLIN:  # the process has ended
                break
            asked = bytearray(80)
            try:
                fcntl.ioctl(told, NOTIF_RECV, asked)
            except OSError:  # the calling process is gone
                continue
            threading.Thread(target=self._let, args=(told, bytes(asked[:8])), daemon=True).start()
        os.close(told)

    def _let(self, told: int, which: bytes) -> None:
        time.sleep(self.wait_s)
        with contextlib.suppress(OSError):  # the calling process is gone
            fcntl.ioctl(told, NOTIF_SEND, bytearray(which + struct.pack("qiI", 0, -self.error, 0 if self.error else NOTIF_CONTINUE)))

    def close(self) -> None:
        """Ends all delays and failures."""
        self.wait_s, self.error = 0.0, 0
        self._ours.close()
        self._theirs.close()


CLOCK_C = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

__attribute__((constructor)) static void look(void) {
    int at = open(getenv("KAS_CLOCK"), O_RDONLY);
    void *page = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, at, 0);
    ahead = page == MAP_FAILED ? 0 : page;
    close(at);
}

int clock_gettime(clockid_t which, struct timespec *out) {
    int got = syscall(SYS_clock_gettime, which, out);
    if (!got && ahead && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) out->tv_sec += *ahead;
    return got;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    int got = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return got;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The time of day of a program that is run with ``prefix`` before its command line. The monotonic clock is not changed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        source, library, self._page = directory / "clock.c", directory / "clock.so", directory / "clock"
        source.write_text(CLOCK_C)
        subprocess.run([prerequisites.program("cc", "a C compiler"), "-shared", "-fPIC", "-O", "-o", library, source], check=True)
        self.jump(0)
        self.prefix = ("env", f"LD_PRELOAD={library}", f"KAS_CLOCK={self._page}")

    def jump(self, seconds: int) -> None:
        """Sets it this many seconds ahead of the machine's."""
        if not self._page.exists():
            self._page.write_bytes(bytes(8))
        with self._page.open("r+b") as page:
            page.write(struct.pack("l", seconds))

