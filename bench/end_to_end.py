# ruff: noqa: E501 — the lines of the C program are C.
"""Measures what a server costs its machine: requests per second, latency and server CPU per request, over TLS, from outside.

    .venv/bin/python bench/end_to_end.py [--quick] [--only get,list-500] [--json FILE]
    .venv/bin/python bench/end_to_end.py --kubeconfig FILE --pids 123,456      # side by side with another server
    .venv/bin/python bench/end_to_end.py --url https://127.0.0.1:6443 --token FILE --ca FILE

Starts ``kas serve`` with one worker on CPU 0 (where ``taskset`` exists). A C client with 64 keep-alive connections, pinned to the last
CPU, keeps one request in flight on each. The CPU figure is the time of the server's processes over the run (the client's TLS handshakes
included), divided by the requests; for a watch row, by the events delivered (its writes included). The client is compiled on the fly and
needs a C compiler and OpenSSL's headers (Debian: gcc, libssl-dev). ``busy`` is the share of a CPU that the client used: near 1, the
client was the limit, not the server.

With another server (an administrator's kubeconfig, or its URL with files of a token and a CA), every row runs on both in turn, a slice on
kas, a slice on the other, ``--rounds`` times, so that both see the same variations of the machine. Both figures are printed unscaled,
with their ratio. The CPU of the other server is known if it runs on this machine and ``--pids`` names its processes (for kube-apiserver,
also those of etcd). Pin them to CPU 0 as kas is, and start them without limits of requests in flight. Without ``--pids`` only requests
per second are compared. The namespace ``bench`` is created and filled on the other server; it must not exist before.

A machine that is also used by others changes its speed within seconds. While a row runs, another process on the server's CPU times a
fixed piece of Python twelve times a second; ``loop`` is the mean. ``scaled`` is the CPU time divided by it, times 500 µs, which the piece
takes on an idle core of 2.5 GHz. Compare ``scaled`` when two rows were measured at different times.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes.util
import http.client
import json
import os
import platform
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kas.testing.server import KasServer  # noqa: E402

NAMESPACE = "bench"
CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TICK = os.sysconf("SC_CLK_TCK")

CLIENT = r"""
/* Closed-loop HTTPS client: C connections on one epoll, one request in flight on each. Or W watches that count events while one
 * connection writes. In path and body "%d" becomes a running number (modulo one given) and "%q" the number itself, so that names
 * come round while every write changes something. Tokens, between commas, are the connections' in turn.
 * What is answered in the first CLIENT_WARM seconds is not counted. Prints one JSON object. */
#define _GNU_SOURCE
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { int fd, watch, ready, status, chunked; SSL *ssl; double sent; long left, got; char *out; int outlen, outat, outcap; char head[16384]; int headlen; char mark; const char *token; } Conn;

static SSL_CTX *ctx; static int ep; static struct sockaddr_in addr;
static const char *method, *path, *type, *body, *accept_; static long next_number, modulo;
static float *lat; static long done, bad, cap; static unsigned long long bytes; static double *written; static long nwritten, events, last_seen;
static char *buf; enum { BUF = 1 << 18 };

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void die(const char *what) { fprintf(stderr, "%s: %s\n", what, strerror(errno)); exit(2); }

static void sample(float ms) { if (done == cap) { cap = cap ? cap * 2 : 1 << 16; lat = realloc(lat, cap * sizeof *lat); if (!lat) die("memory"); } lat[done++] = ms; }

static void number(char *to, size_t size, const char *from, long raw) {
  char some[2][24]; snprintf(some[0], 24, "%06ld", modulo ? raw % modulo : raw); snprintf(some[1], 24, "%06ld", raw); size_t at = 0;
  while (*from && at + 24 < size) {
    if (from[0] == '%' && (from[1] == 'd' || from[1] == 'q')) { const char *d = some[from[1] == 'q']; size_t n = strlen(d); memcpy(to + at, d, n); at += n; from += 2; }
    else to[at++] = *from++;
  }
  to[at] = 0;
}

static void dial(Conn *c) {
  c->fd = socket(AF_INET, SOCK_STREAM, 0); int one = 1;
  if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&addr, sizeof addr)) die("connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  c->ssl = SSL_new(ctx); SSL_set_fd(c->ssl, c->fd);
  if (SSL_connect(c->ssl) != 1) { ERR_print_errors_fp(stderr); exit(2); }
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  struct epoll_event e = { .events = EPOLLIN, .data.ptr = c }; epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
}

static void flush(Conn *c) {
  while (c->outat < c->outlen) {
    int n = SSL_write(c->ssl, c->out + c->outat, c->outlen - c->outat);
    if (n <= 0) { struct epoll_event e = { .events = EPOLLIN | EPOLLOUT, .data.ptr = c }; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e); return; }
    c->outat += n;
  }
}

static void request(Conn *c, const char *m, const char *p, const char *b) {
  static char where[4096], what[1 << 16]; long raw = next_number++;
  number(where, sizeof where, p, raw); what[0] = 0; if (b) number(what, sizeof what, b, raw);
  int need = strlen(where) + strlen(what) + strlen(c->token) + 512;
  if (need > c->outcap) { c->out = realloc(c->out, need); c->outcap = need; }
  c->outlen = snprintf(c->out, c->outcap, "%s %s HTTP/1.1\r\nHost: kas\r\n%s%s%sAccept: %s\r\n", m, where, *c->token ? "Authorization: Bearer " : "", c->token, *c->token ? "\r\n" : "", accept_);
  if (b) c->outlen += snprintf(c->out + c->outlen, c->outcap - c->outlen, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, strlen(what));
  c->outlen += snprintf(c->out + c->outlen, c->outcap - c->outlen, "\r\n%s", what);
  c->outat = 0; c->headlen = 0; c->left = -1; c->sent = now(); flush(c);
}

/* Feeds bytes of an answer; 1 when it is whole. Of chunked answers only the end marker is looked for. */
static int feed(Conn *c, const char *data, int n) {
  if (c->left == -1) {
    int room = sizeof c->head - 1 - c->headlen, take = n < room ? n : room;
    memcpy(c->head + c->headlen, data, take); int before = c->headlen; c->headlen += take; c->head[c->headlen] = 0;
    char *end = strstr(c->head, "\r\n\r\n"); if (!end) { if (c->headlen == sizeof c->head - 1) die("header too long"); return 0; }
    c->status = atoi(c->head + 9); int used = end + 4 - c->head - before; c->chunked = 0; c->left = 0;
    end[2] = 0; char *l = strcasestr(c->head, "\r\ncontent-length:"); if (l) c->left = atol(l + 17); else if (strcasestr(c->head, "\r\ntransfer-encoding:")) c->chunked = 1;
    c->got = 0; data += used; n -= used; c->mark = 0;
    if (c->watch) { c->ready = 1; }
  }
  if (c->chunked) {
    for (int i = 0; i < n; i++) { static const char last[] = "\r\n0\r\n\r\n"; c->mark = data[i] == last[(int)c->mark] ? c->mark + 1 : data[i] == '\r'; if (c->mark == 7) return 1; }
    c->got += n; return 0;
  }
  c->got += n; return c->got >= c->left;
}

static int cmp(const void *a, const void *b) { float x = *(const float *)a, y = *(const float *)b; return (x > y) - (x < y); }
static double pct(double p) { return done ? lat[(long)((done - 1) * p)] : 0; }

static int step(Conn *c, int stop) {
  if (c->outat < c->outlen) { flush(c); if (c->outat == c->outlen) { struct epoll_event e = { .events = EPOLLIN, .data.ptr = c }; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e); } }
  for (;;) {
    int n = SSL_read(c->ssl, buf, BUF);
    if (n <= 0) { int e = SSL_get_error(c->ssl, n); if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE) return 0; fprintf(stderr, "connection ended\n"); exit(3); }
    bytes += n;
    if (c->watch) {
      int whole = c->left != -1; feed(c, buf, n);
      if (whole) { double t = now(); buf[n < BUF ? n : BUF - 1] = 0;
        for (char *p = buf; (p = memmem(p, n - (p - buf), "\"seq\":\"", 7)); p += 7) { long k = atol(p + 7); if (k < nwritten) { events++; sample((t - written[k]) * 1e3); } } }
      continue;
    }
    if (feed(c, buf, n)) { if (c->status / 100 != 2) { if (!bad) fprintf(stderr, "status %d: %.300s\n", c->status, buf); bad++; } if (!stop) sample((now() - c->sent) * 1e3); return 1; }
  }
}

int main(int argc, char **argv) {
  if (argc < 14) { fprintf(stderr, "usage: address:port ca token connections seconds count modulo first method path type body accept [watchers rate watchpath]\n"); return 2; }
  char *colon = strrchr(argv[1], ':'); *colon = 0; int port = atoi(colon + 1), conns = atoi(argv[4]); double seconds = atof(argv[5]); long count = atol(argv[6]); modulo = atol(argv[7]); next_number = atol(argv[8]);
  method = argv[9]; path = argv[10]; type = argv[11]; body = argv[12][0] ? argv[12] : NULL; accept_ = argv[13];
  int watchers = argc > 14 ? atoi(argv[14]) : 0; double rate = argc > 15 ? atof(argv[15]) : 0; const char *watchpath = argc > 16 ? argv[16] : NULL;
  addr.sin_family = AF_INET; addr.sin_port = htons(port); inet_pton(AF_INET, argv[1], &addr.sin_addr);
  ctx = SSL_CTX_new(TLS_client_method()); if (SSL_CTX_load_verify_locations(ctx, argv[2], NULL) != 1) die("ca");
  const char *cert = getenv("CLIENT_CERT"), *key = getenv("CLIENT_KEY"); if (cert && (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1 || SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)) die("client certificate"); SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
  buf = malloc(BUF + 1); ep = epoll_create1(0); Conn *all = calloc(conns + watchers, sizeof *all); struct epoll_event ev[256];
  const char *tokens[8]; int users = 0; for (char *t = strtok(argv[3], ","); t && users < 8; t = strtok(NULL, ",")) tokens[users++] = t;
  if (!users) tokens[users++] = ""; /* a certificate says who it is */
  for (int i = 0; i < conns + watchers; i++) all[i].token = tokens[i % users]; /* one user's after another's */
  const char *b = body;
  for (int i = 0; i < watchers; i++) { Conn *c = &all[conns + i]; c->watch = 1; dial(c); long keep = next_number; body = NULL; request(c, "GET", watchpath, NULL); next_number = keep; body = b; }
  for (int open = 0; open < watchers;) { int n = epoll_wait(ep, ev, 256, 20000); if (!n) die("watches did not open"); for (int i = 0; i < n; i++) { Conn *c = ev[i].data.ptr; int was = c->ready; step(c, 0); open += c->ready && !was; } }
  if (watchers && !rate) { printf("{\"watching\": %d}\n", watchers); fflush(stdout); char line[8]; if (!fgets(line, sizeof line, stdin)) return 0; return 0; }
  for (int i = 0; i < conns; i++) dial(&all[i]);
  struct rusage u0, u1; getrusage(RUSAGE_SELF, &u0); done = 0; bytes = 0; const char *w = getenv("CLIENT_WARM"); double warm = w ? atof(w) : 0, t0 = now() + warm, end = t0 + seconds; long issued = 0; int flying = 0;
  if (watchers) { written = calloc((long)(rate * seconds) + 64, sizeof *written); }
  else for (int i = 0; i < conns && (!count || issued < count); i++, issued++, flying++) request(&all[i], method, path, body);
  int writing = 0; double quiet = 0;
  while (watchers ? now() < end || (events < nwritten * watchers && now() < end + 15) : flying > 0) {
    int n = epoll_wait(ep, ev, 256, watchers ? 2 : 20000); if (!watchers && !n) { fprintf(stderr, "no answer in 20 s\n"); return 4; }
    double t = now(); int over = count ? 0 : t >= end; (void)quiet;
    if (warm && t >= t0) { warm = 0; done = 0; bytes = 0; }
    for (int i = 0; i < n; i++) {
      Conn *c = ev[i].data.ptr; int whole = step(c, watchers ? 1 : 0);
      if (!whole || c->watch) continue;
      if (watchers) { writing = 0; continue; }
      if (over || (count && issued >= count)) flying--; else { issued++; request(c, method, path, body); }
    }
    if (watchers && !writing && now() < end && nwritten < (now() - t0) * rate) { written[nwritten] = now(); next_number = nwritten; nwritten++; writing = 1; request(&all[0], method, path, body); }
  }
  double took = (watchers ? end : now()) - t0; getrusage(RUSAGE_SELF, &u1);
  double cpu = (u1.ru_utime.tv_sec - u0.ru_utime.tv_sec) + (u1.ru_stime.tv_sec - u0.ru_stime.tv_sec) + 1e-6 * (u1.ru_utime.tv_usec - u0.ru_utime.tv_usec + u1.ru_stime.tv_usec - u0.ru_stime.tv_usec);
  qsort(lat, done, sizeof *lat, cmp);
  printf("{\"requests\": %ld, \"bad\": %ld, \"seconds\": %.4f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, \"bytes\": %llu, \"busy\": %.3f, \"writes\": %ld, \"events\": %ld, \"expected\": %ld}\n",
         watchers ? nwritten : done, bad, took, pct(.5), pct(.99), pct(1), bytes, cpu / (now() - t0), nwritten, events, nwritten * watchers);
  return 0;
}
"""


@dataclass
class Target:
    """A server under load: its IPv4 address, the credential of the requests, and the processes whose CPU time counts; none when unknown."""

    name: str
    host: str
    port: int
    ca: str
    token: str
    pids: tuple[int, ...] = ()
    nobody: str = ""  # a token of somebody without rights
    reader: str = ""  # a token of somebody who may read, and is no administrator
    shown: tuple[str, str] | None = None  # files of a client certificate and its key

    @classmethod
    def kas(cls, server: KasServer) -> Target:
        return cls("kas", "127.0.0.1", server.port, server.ca, server.token, (server.pid,))

    def ask(self, method: str, path: str, body: dict[str, Any] | None, want: tuple[int, ...]) -> Any:
        """The JSON of an answer. RuntimeError for one with a status that is not in ``want``."""
        connection = http.client.HTTPSConnection(self.host, self.port, context=ssl.create_default_context(cafile=self.ca))
        with contextlib.closing(connection):
            head = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), head)
            answer = connection.getresponse()
            text = answer.read()
        if answer.status not in want:
            raise RuntimeError(f"{self.name}: {method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)


def other_target(args: argparse.Namespace, directory: Path) -> Target | None:
    """The server to compare with, from ``--kubeconfig`` or ``--url``, ``--token``, ``--ca``; None when there is none."""
    pids = tuple(int(p) for p in args.pids.split(",") if p)
    if args.kubeconfig:
        url, token, ca = read_kubeconfig(Path(args.kubeconfig), directory)
    elif args.url:
        url, token, ca = args.url, Path(args.token).read_text().strip(), args.ca
    else:
        return None
    parts = urllib.parse.urlsplit(url)
    return Target("other", socket.gethostbyname(parts.hostname or ""), parts.port or 443, ca, token, pids)


def read_kubeconfig(path: Path, directory: Path) -> tuple[str, str, str]:
    """(URL, token, file of the CA) of the current context; the client speaks bearer tokens only."""
    import yaml

    config = yaml.safe_load(path.read_text())
    named = {kind: {x["name"]: x[kind[:-1]] for x in config[kind]} for kind in ("clusters", "contexts", "users")}
    context = named["contexts"][config["current-context"]]
    cluster, user = named["clusters"][context["cluster"]], named["users"][context["user"]]
    if "token" not in user:
        raise SystemExit(f"end_to_end: {path}: the user {context['user']} has no token")
    ca = cluster.get("certificate-authority")
    if ca is None:
        ca = directory / "other-ca.crt"
        ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return cluster["server"], user["token"], str(ca)


class Client:
    """The compiled load client."""

    def __init__(self, directory: Path) -> None:
        source, self.program = directory / "client.c", directory / "client"
        source.write_text(CLIENT)
        compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
        if compiler is None or ctypes.util.find_library("ssl") is None:
            raise SystemExit("end_to_end: needs a C compiler and OpenSSL with its headers (Debian: gcc, libssl-dev)")
        built = subprocess.run(
            [compiler, "-O2", "-w", "-o", self.program, source, "-lssl", "-lcrypto"], capture_output=True, text=True, check=False
        )
        if built.returncode:
            raise SystemExit(f"end_to_end: the client does not compile (OpenSSL's headers missing?):\n{built.stderr[:800]}")

    def command(self, target: Target, method: str, path: str, **o: Any) -> list[str]:
        body, watch = o.get("body"), o.get("watch")
        fixed = (o.get("connections", 64), o.get("seconds", 0), o.get("count", 0), o.get("modulo", 0), o.get("first", 0))
        token = target.nobody if o.get("refused") else target.reader if o.get("reader") else target.token
        if o.get("users"):
            token = f"{target.token},{target.reader}"
        argv = [self.program, f"{target.host}:{target.port}", target.ca, token, *fixed]
        argv += [
            method,
            path,
            o.get("type", "application/json"),
            json.dumps(body, separators=(",", ":")) if body else "",
            o.get("accept", "application/json"),
        ]
        if watch:
            argv += watch
        return [*pinned(os.cpu_count() - 1), *map(str, argv)]

    def run(self, target: Target, method: str, path: str, **options: Any) -> dict[str, Any]:
        env = {**os.environ, "CLIENT_WARM": str(options.get("warm", 0))}
        if target.shown:
            env |= {"CLIENT_CERT": target.shown[0], "CLIENT_KEY": target.shown[1]}
        command = self.command(target, method, path, **options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=env)
        if done.returncode:
            raise RuntimeError(f"{target.name}: {method} {path}: the client ended with {done.returncode}: {done.stderr[:500]}")
        out = json.loads(done.stdout)
        if out["bad"] and not (options.get("refused") and out["bad"] == out["requests"]):
            raise RuntimeError(f"{target.name}: {method} {path}: {out['bad']} of {out['requests']} answers were refusals: {done.stderr[:500]}")
        return out


# The administrator's requests are exempt from flow control, and pass it.
UNLIMITED = ("--workers", "1")
REFERENCE_US = 500.0
LOOP = """
import signal, sys, time
took = []
def end(*_):
    print(sum(took) / len(took) * 1e6 if took else 0.0)
    sys.exit()
def once():
    began, seen, text = time.thread_time(), {}, ""
    for i in range(1500):
        seen["k%d" % (i % 50)] = (i, text)
        text = str(i)
        isinstance(seen, dict)
        seen.get(text)
    return time.thread_time() - began
signal.signal(signal.SIGTERM, end)
while True:
    took.append(once())
    time.sleep(0.08)
"""


class Speed:
    """``loop_us`` after the block: how long the fixed piece of Python took on the server's CPU meanwhile."""

    loop_us = REFERENCE_US

    def __enter__(self) -> Speed:
        self.process = subprocess.Popen([*pinned(0), sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        with contextlib.suppress(ValueError):
            self.loop_us = float(self.process.communicate()[0]) or REFERENCE_US


def pinned(cpu: int) -> list[str]:
    return ["taskset", "-c", str(cpu)] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []


def processes(pid: int) -> list[int]:
    """The server and everything it started."""
    out, todo = [], [pid]
    while todo:
        p = todo.pop()
        out.append(p)
        for task in Path(f"/proc/{p}/task").iterdir():
            todo += [int(c) for c in (task / "children").read_text().split()]
    return out


def cpu_s(pid: int) -> float:
    """User and system seconds of the server; from schedstat, whose clock is finer than ticks, where it is there."""
    total = 0.0
    for p in processes(pid):
        total += sum(int(t.joinpath("schedstat").read_text().split()[0]) for t in Path(f"/proc/{p}/task").iterdir()) * 1e-9
    return total


def rss_mib(pid: int) -> float:
    """Memory of the server that no other process shares (pages of the store's map are the kernel's cache)."""
    kib = 0
    for p in processes(pid):
        text = Path(f"/proc/{p}/smaps_rollup").read_text()
        kib += sum(int(re.search(rf"^{k}:\s+(\d+)", text, re.M).group(1)) for k in ("Pss_Anon", "Pss_Shmem"))
    return kib / 1024


def resident_mib(pid: int) -> float:
    """Proportional set size of all processes: shared pages counted once."""
    return sum(int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{p}/smaps_rollup").read_text(), re.M).group(1)) for p in processes(pid)) / 1024


def configmap(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"seq": "%q", "pad": "x" * 1200},
    }


def pod(name: str) -> dict[str, Any]:
    """About 6.5 KB once stored: two containers with probes, environment and volumes, and no warnings."""

    def container(n: str, port: int) -> dict[str, Any]:
        probe = {"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 10, "timeoutSeconds": 2}
        return {
            "name": n,
            "image": f"registry.example.com/{n}:v1",
            "args": [f"--listen=:{port}", "--log-format=json"],
            "ports": [{"name": f"{n}-http", "containerPort": port}],
            "env": [{"name": f"SETTING_{i}", "value": f"value of setting {i}"} for i in range(8)],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "livenessProbe": probe,
            "readinessProbe": probe,
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
        }

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench", "tier": "backend"}, "annotations": {"note": "n" * 400}},
        "spec": {
            "nodeName": "node-1",
            "automountServiceAccountToken": False,
            "containers": [container("web", 8080), container("sidecar", 8081)],
            "volumes": [{"name": "config", "configMap": {"name": "settings"}}],
        },
    }


class Bench:
    """Runs the rows one after the other, each on every target in turn, and collects the results."""

    def __init__(self, targets: Sequence[Target], client: Client, args: argparse.Namespace) -> None:
        self.targets, self.client, self.args = targets, client, args
        self.rows: list[dict[str, Any]] = []
        self.known: list[str] = []  # every row that was asked about, measured or not
        self.numbers = 10_000_000  # every run has numbers of its own: names that are new, and values that change something

    def fresh(self) -> int:
        self.numbers += 10_000_000
        return self.numbers

    def prepare(self) -> None:
        for target in self.targets:
            self._prepare(target)

    def _prepare(self, target: Target) -> None:
        call = target.ask
        call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}, (201,))
        call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}}, (201, 409))
        call("POST", CONFIGMAPS, configmap("one"), (201,))
        accounts, rbac = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        call("POST", accounts, {"metadata": {"name": "reader"}}, (201,))
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]
        call("POST", f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules}, (201,))
        subjects = [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "reader"}]
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
        call("POST", f"{rbac}/rolebindings", {"metadata": {"name": "reader"}, "roleRef": ref, "subjects": subjects}, (201,))
        lasting = {"spec": {"expirationSeconds": 36000}}
        target.nobody, target.reader = (
            call("POST", f"{accounts}/{name}/token", lasting, (201,))["status"]["token"] for name in ("default", "reader")
        )
        self.client.run(target, "POST", CONFIGMAPS, count=256, body=configmap("c-%d"), first=0)
        if self.wants("list"):
            self.client.run(target, "POST", PODS, count=self.args.pods, body=pod("c-%d"), first=0)

    def wants(self, name: str) -> bool:
        self.known.append(name)
        return not self.args.only or any(_meant(name, o) for o in self.args.only.split(","))

    def unmet(self) -> str:
        """The error of ``--only`` after all rows were looked up: unknown names."""
        unknown = [o for o in self.args.only.split(",") if not any(_meant(name, o) for name in self.known)]
        return f"--only: no row is named {', '.join(unknown)}; there are {', '.join(dict.fromkeys(self.known))}" if unknown else ""

    def row(self, name: str, method: str, path: str, **options: Any) -> None:
        if not self.wants(name):
            return
        rounds = self.args.rounds if len(self.targets) > 1 else 1
        if not options.get("watch"):
            for target in self.targets:
                self.client.run(target, method, path, seconds=self.args.seconds / 4, first=self.fresh(), **options)
        slices: list[list[dict[str, Any]]] = [[] for _ in self.targets]
        for _ in range(rounds):
            for target, of_target in zip(self.targets, slices, strict=True):
                of_target.append(self._slice(target, method, path, self.args.seconds / rounds, options))
        figures = [_together(of_target) for of_target in slices]
        row: dict[str, Any] = {"name": name, **figures[0]}
        if len(figures) > 1:
            row |= {"other": figures[1], "ratio": ratio(figures[0], figures[1])}
        self.rows.append(row)
        print(_two(row) if len(figures) > 1 else _one(row), flush=True)

    def _slice(self, target: Target, method: str, path: str, seconds: float, options: dict[str, Any]) -> dict[str, Any]:
        before = sum(map(cpu_s, target.pids))
        with Speed() as speed:
            got = self.client.run(target, method, path, seconds=seconds, first=self.fresh(), **options)
        used = sum(map(cpu_s, target.pids)) - before
        got |= {"n": got["events"] if options.get("watch") else got["requests"], "loop_us": speed.loop_us}
        return got | {"cpu_s": used if target.pids else None, "lost": got["expected"] - got["events"]}

    def run(self) -> None:
        if len(self.targets) > 1:
            print(f"{'':24} {'kas /s':>10} {'CPU µs':>10} {'p50 ms':>9} {'p99 ms':>9}   {'other /s':>10} {'CPU µs':>10} {'p50 ms':>9} {'p99 ms':>9} {'ratio':>7}")
        else:
            print(f"{'':24} {'/s':>10} {'CPU µs':>10} {'scaled':>10} {'loop':>6} {'p50 ms':>9} {'p99 ms':>9} {'max ms':>9} {'busy':>6}")
        self._rows()

    def _rows(self) -> None:
        one, many = f"{CONFIGMAPS}/one", f"{CONFIGMAPS}/c-%d"
        merge = {"data": {"seq": "%q"}}
        self.row("get", "GET", one)
        self.row("get-reader", "GET", one, reader=True)
        self.row("get-users", "GET", one, users=True)  # both, with as many connections each
        self.row("403", "GET", one, refused=True)
        self.row("list-1-pod", "GET", f"{PODS}?limit=1")
        self.row("list-1-pod-protobuf", "GET", f"{PODS}?limit=1", accept="application/vnd.kubernetes.protobuf")
        self.row("list-500", "GET", f"{PODS}?limit=500", connections=16)
        self.row(f"list-all-{self.args.pods}", "GET", f"{PODS}?resourceVersion=0", connections=4)
        self.row("list-all-protobuf", "GET", f"{PODS}?resourceVersion=0", connections=4, accept="application/vnd.kubernetes.protobuf")
        self.row("create", "POST", CONFIGMAPS, body=configmap("c-%d"))
        self.row("update", "PUT", many, body=configmap("c-%d"), modulo=256)
        self.row("patch", "PATCH", many, body=merge, type="application/merge-patch+json", modulo=256)
        applied = f"{CONFIGMAPS}/a-%d?fieldManager=bench&force=true"
        self.row("apply", "PATCH", applied, body=configmap("a-%d"), type="application/apply-patch+yaml", modulo=256)
        self.row("create-pod", "POST", PODS, body=pod("n-%d"))
        status = {"status": {"phase": "Running", "message": "%q", "podIP": "10.2.3.4", "podIPs": [{"ip": "10.2.3.4"}]}}
        if self.wants("list"):
            self.row("patch-pod-status", "PATCH", f"{PODS}/c-%d/status", body=status, type="application/merge-patch+json", modulo=256)
        for watchers, rate in ((100, 100), (1000, 20)):
            self.row(
                f"watch-{watchers}", "PATCH", one, body=merge, type="application/merge-patch+json", connections=1,
                watch=(watchers, rate, f"{CONFIGMAPS}?watch=true&fieldSelector=metadata.name%3Done"),
            )  # fmt: skip


def _meant(name: str, only: str) -> bool:
    return name.startswith(only) or only.startswith(name)


def chosen(parser: argparse.ArgumentParser, only: str, names: Sequence[str]) -> list[str]:
    """The names in ``only``, all where it is empty. Ends with the parser's error for one that is not among ``names``."""
    wanted = only.split(",") if only else list(names)
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"--only: no row is named {', '.join(unknown)}; there are {', '.join(names)}")
    return wanted


def _together(slices: list[dict[str, Any]]) -> dict[str, Any]:
    """The results of a row from its slices: sums, means of the percentiles, the largest maximum; only ``scaled_us`` is scaled."""
    n, seconds = sum(s["n"] for s in slices), sum(s["seconds"] for s in slices)
    loop = sum(s["loop_us"] for s in slices) / len(slices)
    cpu = None if slices[0]["cpu_s"] is None else sum(s["cpu_s"] for s in slices) / max(n, 1) * 1e6
    mean = {k: sum(s[k] for s in slices) / len(slices) for k in ("p50_ms", "p99_ms", "busy")}
    return {
        "n": n, "per_s": n / seconds, "cpu_us": cpu, "scaled_us": None if cpu is None else cpu * REFERENCE_US / loop, "loop_us": loop, **mean,
        "max_ms": max(s["max_ms"] for s in slices), "lost": sum(s["lost"] for s in slices), "writes": sum(s["writes"] for s in slices),
    }  # fmt: skip


def ratio(kas: dict[str, Any], other: dict[str, Any]) -> float:
    """How many times dearer a request is to the other server: in CPU, or in requests a second when its CPU is unknown."""
    if kas["cpu_us"] and other["cpu_us"]:
        return other["cpu_us"] / kas["cpu_us"]
    return kas["per_s"] / other["per_s"]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


def _one(r: dict[str, Any]) -> str:
    return (
        f"{r['name']:24} {r['per_s']:10.0f} {_number(r['cpu_us']):>10} {_number(r['scaled_us']):>10} {r['loop_us']:6.0f} "
        f"{r['p50_ms']:9.2f} {r['p99_ms']:9.2f} {r['max_ms']:9.2f} {r['busy']:6.2f}"
    )


def _two(r: dict[str, Any]) -> str:
    sides = [f"{x['per_s']:10.0f} {_number(x['cpu_us']):>10} {x['p50_ms']:9.2f} {x['p99_ms']:9.2f}" for x in (r, r["other"])]
    return f"{r['name']:24} {'   '.join(sides)} {r['ratio']:7.2f}"


def idle_watches(client: Client, target: Target, watchers: int) -> float:
    """The additional MiB with so many open watches that have no events."""
    (pid,) = target.pids
    before = resident_mib(pid)
    watch = (watchers, 0, f"{CONFIGMAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Dnosuch")
    command = client.command(target, "GET", f"{CONFIGMAPS}/one", watch=watch, connections=0)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if "watching" not in process.stdout.readline():
            raise RuntimeError("the idle watches did not open")
        return resident_mib(pid) - before
    finally:
        process.communicate("end\n", timeout=30)


def machine() -> dict[str, Any]:
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()
    return {
        "cpu": model.group(1) if model else "?",
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit,
        "load": os.getloadavg()[0],
    }


def arguments(said: str | None = __doc__) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=said, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each row")
    parser.add_argument("--pods", type=int, default=5000, help="how many are listed")
    parser.add_argument("--quick", action="store_true", help="one second a row, 500 pods")
    parser.add_argument("--only", default="", help="rows to run, comma separated")
    parser.add_argument("--json", help="write everything to this file")
    other = parser.add_argument_group("another server, side by side")
    other.add_argument("--kubeconfig", help="of an administrator with a token")
    other.add_argument("--url", help="https://address:port")
    other.add_argument("--token", help="file with a token of an administrator")
    other.add_argument("--ca", help="file with the CA of its certificate")
    other.add_argument("--pids", default="", help="its processes on this machine, comma separated; those they start count, too")
    other.add_argument("--rounds", type=int, default=4, help="slices of each row, in turn")
    args = parser.parse_args()
    if args.url and not (args.token and args.ca):
        parser.error("--url needs --token and --ca")
    if args.quick:
        args.seconds, args.pods = 1.0, 500
    return args


def pin(server: KasServer) -> None:
    """All processes of a server to CPU 0."""
    if taskset := pinned(0):
        for p in processes(server.pid):
            subprocess.run([*taskset[:1], "-a", "-p", "-c", "0", str(p)], capture_output=True, check=True)
    time.sleep(1)


def front(args: argparse.Namespace, here: Path, client: Client, plain: Target) -> list[dict[str, Any]]:
    """What the TLS front costs: a GET by token without it ("kas") and with it ("other"), and the same against one by certificate. Both
    servers have one worker on CPU 0; the front runs there, too."""
    server = KasServer(here / "front", *UNLIMITED, f"--client-ca-file={plain.ca}")
    rows = []
    with server:
        pin(server)
        pki = server.data_dir / "pki"
        target = Target("front", "127.0.0.1", server.port, server.ca, server.token, (server.pid,))
        Bench([target], client, args).prepare()
        for name, token, shown in (("token", server.token, None), ("x509", "", (str(pki / "admin.crt"), str(pki / "admin.key")))):
            target.token, target.shown = token, shown
            bench = Bench([plain, target], client, args)
            bench.row(f"front-get-{name}", "GET", f"{CONFIGMAPS}/one")
            bench.row(f"front-list-500-{name}", "GET", f"{PODS}?limit=500", connections=16)
            rows += bench.rows
    return rows


def measure(args: argparse.Namespace, here: Path) -> tuple[Bench, dict[str, float]]:
    """The rows of one worker on CPU 0, and the MiB of idle watches."""
    other = other_target(args, here)
    server = KasServer(here / "server", *UNLIMITED)
    with server:
        client = Client(here)
        pin(server)
        memory: dict[str, float] = {}
        target = Target.kas(server)
        bench = Bench([target, other] if other else [target], client, args)
        bench.prepare()
        bench.run()
        if bench.wants("idle"):
            memory["idle_1000_watches_more_mib"] = idle_watches(client, target, 1000)
        if bench.wants("front"):
            bench.rows += front(args, here, client, target)
    return bench, memory


def main() -> int:
    args = arguments()
    about = machine()
    print(" ".join(f"{k}={v}" for k, v in about.items()))
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        bench, memory = measure(args, here)
    for what, mib in memory.items():
        print(f"memory (PSS): {what} {mib:.1f}")
    result = {"machine": about, "rows": bench.rows, "memory": memory, "seconds": args.seconds}
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1))
    else:
        print(json.dumps(result))
    if unmet := bench.unmet():
        print(unmet, file=sys.stderr)
    return 2 if unmet else 0


if __name__ == "__main__":
    sys.exit(main())
