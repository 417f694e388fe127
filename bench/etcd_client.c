/* gRPC over HTTP/2 without TLS, one connection: N slots, one transaction in flight in each. "##########" in the message becomes a running
 * number. What is answered in the first seconds, the warm ones, is not counted. Prints one JSON object. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { double sent, due; int flying, told; } Slot;

static int fd; static uint32_t next_id = 1; static int slot_of[1 << 16]; static Slot *slots;
static unsigned char message[1 << 16], block[1024], *out; static size_t length, block_length, queued, capacity, at;
static long window = 65535, next_number, done, cap, refused; static float *took;

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void die(const char *what) { fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "not understood"); exit(2); }

static void put(const void *data, size_t n) {
  if (queued + n > capacity) { capacity = (queued + n) * 2; out = realloc(out, capacity); if (!out) die("memory"); }
  memcpy(out + queued, data, n); queued += n;
}

static void frame(size_t n, int kind, int flags, uint32_t id) {
  unsigned char head[9] = { n >> 16, n >> 8, n, kind, flags, id >> 24, id >> 16, id >> 8, id }; put(head, 9);
}

static void flush(void) {
  while (at < queued) {
    ssize_t n = write(fd, out + at, queued - at);
    if (n < 0) { if (errno == EAGAIN) return; die("write"); }
    at += n;
  }
  at = queued = 0;
}

static void literal(int first, int second, const char *name, const char *value) {
  unsigned char *to = block + block_length; if (first >= 0) *to++ = first; if (second >= 0) *to++ = second;
  if (name) { *to++ = strlen(name); memcpy(to, name, strlen(name)); to += strlen(name); }
  *to++ = strlen(value); memcpy(to, value, strlen(value)); block_length = to + strlen(value) - block;
}

/* Whether there was room in the connection's window; streams have as much as is wanted. */
static int begin(int slot) {
  Slot *s = &slots[slot]; if (window < (long)length + 5) return 0;
  char number[16]; snprintf(number, sizeof number, "%010ld", next_number++);
  static unsigned char *where[8]; static int places = -1;
  if (places < 0) {
    unsigned char *p = message, *end = message + length; places = 0;
    for (; places < 8 && (p = memmem(p, end - p, "##########", 10)); p += 10) where[places++] = p;
    if (!places) die("the message");
  }
  for (int i = 0; i < places; i++) memcpy(where[i], number, 10);
  unsigned char head[5] = { 0, length >> 24, length >> 16, length >> 8, length };
  frame(block_length, 1, 4, next_id); put(block, block_length); frame(length + 5, 0, 1, next_id); put(head, 5); put(message, length);
  slot_of[(next_id >> 1) & 0xffff] = slot; next_id += 2; window -= length + 5; s->flying = 1; s->told = 0;
  return 1;
}

/* A TxnResponse behind its five bytes: the header, then that it succeeded. */
static int succeeded(const unsigned char *p, size_t n) {
  return n >= 9 && p[5] == 0x0a && p[6] < 128 && n >= 9u + p[6] && p[7 + p[6]] == 0x10 && p[8 + p[6]] == 1;
}

static void sample(float ms) {
  if (done == cap) { cap = cap ? cap * 2 : 1 << 16; took = realloc(took, cap * sizeof *took); if (!took) die("memory"); }
  took[done++] = ms;
}
static int cmp(const void *a, const void *b) { float x = *(const float *)a, y = *(const float *)b; return (x > y) - (x < y); }
static double pct(double p) { return done ? took[(long)((done - 1) * p)] : 0; }

int main(int argc, char **argv) {
  if (argc != 8) { fprintf(stderr, "usage: address:port message(hex) at-once seconds warm rate first\n"); return 2; }
  struct sockaddr_in to = { .sin_family = AF_INET }; char *colon = strrchr(argv[1], ':'), authority[64];
  snprintf(authority, sizeof authority, "%s", argv[1]);
  *colon = 0; to.sin_port = htons(atoi(colon + 1)); if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) die("the address");
  for (char *h = argv[2]; h[0] && h[1] && length < sizeof message; h += 2) { unsigned b; sscanf(h, "%2x", &b); message[length++] = b; }
  int n_slots = atoi(argv[3]); double seconds = atof(argv[4]), warm = atof(argv[5]), rate = atof(argv[6]); next_number = atol(argv[7]);
  slots = calloc(n_slots, sizeof *slots); fd = socket(AF_INET, SOCK_STREAM, 0); int one = 1;
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); fcntl(fd, F_SETFL, O_NONBLOCK);
  block[0] = 0x83; block[1] = 0x86; block_length = 2; /* POST, http */
  literal(0x04, -1, NULL, "/etcdserverpb.KV/Txn"); literal(0x01, -1, NULL, authority);
  literal(0x0f, 0x10, NULL, "application/grpc"); literal(0, -1, "te", "trailers");
  put("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24); frame(0, 4, 0, 0); frame(4, 8, 0, 0); put("\x3f\x00\x00\x00", 4); flush();
  static unsigned char in[1 << 18]; size_t have = 0; double began = now() + warm, end = began + seconds; int flying = 0;
  for (int i = 0; i < n_slots; i++) slots[i].due = rate ? now() + i / rate : 0;
  while (now() < end || flying) {
    double t = now(), soon = t + 10;
    for (int i = 0; i < n_slots && t < end; i++) {
      Slot *s = &slots[i]; if (s->flying) continue;
      if (s->due > t) { if (s->due < soon) soon = s->due; continue; }
      s->sent = now(); if (!begin(i)) { soon = t + 10; break; } /* the window is opened by what is read */
      flying++;
    }
    flush();
    struct pollfd p = { fd, POLLIN | (at < queued ? POLLOUT : 0), 0 }; double left = soon - now(); if (left < 0) left = 0;
    struct timespec wait = { (time_t)left, (long)((left - (time_t)left) * 1e9) };
    int ready = ppoll(&p, 1, &wait, NULL); if (!ready && left > 9) { fprintf(stderr, "no answer in 10 s\n"); return 4; }
    ssize_t n = read(fd, in + have, sizeof in - have); if (n < 0 && errno == EAGAIN) continue;
    errno = 0; if (n <= 0) die("the connection ended");
    have += n; size_t used = 0;
    while (have - used >= 9) {
      unsigned char *f = in + used; size_t size = f[0] << 16 | f[1] << 8 | f[2]; if (have - used < 9 + size) break;
      int kind = f[3], flags = f[4]; uint32_t id = (f[5] & 127) << 24 | f[6] << 16 | f[7] << 8 | f[8];
      unsigned char *body = f + 9; used += 9 + size;
      if (kind == 4 && !(flags & 1)) frame(0, 4, 1, 0);
      else if (kind == 6 && !(flags & 1)) { frame(8, 6, 1, 0); put(body, 8); }
      else if (kind == 8 && !id) window += (body[0] & 127) << 24 | body[1] << 16 | body[2] << 8 | body[3];
      else if (kind == 3 || kind == 7) die("the server gave up");
      else if (kind == 0 || kind == 1) {
        Slot *s = &slots[slot_of[(id >> 1) & 0xffff]]; if (kind == 0) s->told = succeeded(body, size);
        if (flags & 1) {
          double over = now(); s->flying = 0; flying--; if (!s->told) refused++;
          if (s->sent >= began) sample((over - s->sent) * 1e3);
          if (rate) s->due = s->due + n_slots / rate > over ? s->due + n_slots / rate : over;
        }
      }
    }
    memmove(in, in + used, have - used); have -= used;
  }
  qsort(took, done, sizeof *took, cmp);
  printf("{\"requests\": %ld, \"refused\": %ld, \"seconds\": %.4f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n",
         done, refused, now() - began, pct(.5), pct(.99), pct(1));
  return 0;
}
