"""What the pages of a list share, whatever their encoding: page sizes, memory accounting, ListMeta and streaming."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from kas.auth.user import SERVICE_ACCOUNT_PREFIX
from kas.endpoints import respond
from kas.endpoints.served import Served
from kas.meta import errors
from kas.meta.fairqueue import FairSemaphore
from kas.meta.offload import LARGE, POOL
from kas.meta.records import NamedTuple
from kas.meta.waiting import LoopThrottle, TimeSlice
from kas.registry.versions import Shown
from kas.request.http import Headers, Request, Response, Write, taken
from kas.request.negotiation import JSON
from kas.store import Compacted, Store, continuetoken

if TYPE_CHECKING:
    from kas.endpoints.sharding import Shards

# A page is built, written and encrypted while it is in the processor's cache: lists of 13 MB take 4 % less time than in pages of 1 MiB.
# With more than FEW concurrent answers a page is as large as one write to a connection (``write_bytes``).
PAGE_BYTES, PIECE_BYTES, LEAST_BYTES = 512 << 10, 256 << 10, 64 << 10
# Bound on the pages that all answers in progress hold together; with many answers each gets smaller pages.
PAGES_BYTES = 32 << 20
# Large pieces of one user's watches: how many bytes they may hold, for how long, and what each counts for before its size is known.
USER_BYTES, PATIENCE_S, FIRST_BYTES = 64 << 20, 60.0, 64 << 10
ALL_BYTES = 256 << 20  # the same bound for all users together
# The end of the last page that is encoded separately: more than one piece of what the HTTP server may hold of a response (``taken``).
END_BYTES = 64
FEW = 4  # concurrent answers up to which pages are written without being cut
SLACK_BYTES = 16 << 10  # excess over the write size for which a page is not cut
FIRST_ITEMS = 128  # the size of an item is not known yet
PAGE_ITEMS = 512  # up to here a scan keeps the GIL
# A page at an old revision undoes all later writes. After so many writes, larger pages are read so that this is not repeated for every
# small one. They are still bounded, because a slow client keeps its page in memory.
WRITES_BEFORE_REST, REST_BYTES = 5000, 8 << 20
SELECTED_FROM = 5000  # number of keys from which a selection among them runs in a thread; half a microsecond per key
COLLECTED_AT_ONCE = 4  # large answers that must be complete before they can be sent

collecting = FairSemaphore(COLLECTED_AT_ONCE)


class Underway:
    """Counts the answers in progress that are sent page by page: lists and the initial states of watches. Used as a context manager."""

    def __init__(self) -> None:
        self.answers = 0

    def __enter__(self) -> None:
        self.answers += 1

    def __exit__(self, *_: object) -> None:
        self.answers -= 1

    @property
    def page_bytes(self) -> int:
        """The maximum size of the next page, in bytes."""
        answers = self.answers
        if answers <= FEW:
            return PAGE_BYTES
        return max(LEAST_BYTES, min(PIECE_BYTES, PAGES_BYTES // (answers + 1)))

    @property
    def write_bytes(self) -> int:
        """The maximum size of one write to a connection, in bytes.

        The HTTP server below buffers a few pieces per connection whatever their size: 60 lists of 20 MB hold 430 MB in pieces of 1 MB,
        and 180 MB in pieces of 256 KiB.
        """
        return (4 if self.answers <= FEW else 1) * self.page_bytes + SLACK_BYTES


underway = Underway()


# Admits pages that are built on the event loop, which takes some milliseconds for a Table. All that are built in one iteration of the loop,
# for whatever answers, share the length of one ``TimeSlice``.
making = LoopThrottle()


class NotTakenError(Exception):
    """A client did not read what was sent to it in time."""


def _namespace(user: str) -> str:
    """Return the namespace of a service account, "" for other users."""
    return user[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")[0] if user.startswith(SERVICE_ACCOUNT_PREFIX) else ""


def _add(counts: dict[str, int], key: str, size: int) -> None:
    now = counts.get(key, 0) + size
    if now:
        counts[key] = now
    else:
        counts.pop(key, None)


class Room:
    """Bounds the memory of pieces of lists and large pieces of watches until their clients have read them.

    Each user has a limit. Above it, the user's streams wait in order of arrival, before anything is read from the store for them. Streams
    of a stalled client are ended after a while, which makes room for the user's other streams.

    Of the total, no user may hold more than is left free. The last user to arrive thus finds as much as each earlier one holds: half of the
    total with one user, a third with two. The service accounts of a namespace are also counted together, because a user who can create one
    can create hundreds.
    """

    def __init__(self, most_bytes: int = USER_BYTES, patience_s: float | None = None, all_bytes: int = ALL_BYTES) -> None:
        self._most, self._own_patience_s = most_bytes, patience_s
        self.held: dict[str, int] = {}
        self._free = all_bytes
        self._by_namespace: dict[str, int] = {}  # of service accounts
        self._waiting: dict[str, OrderedDict[asyncio.Future[None], None]] = {}

    @property
    def _patience_s(self) -> float:
        return PATIENCE_S if self._own_patience_s is None else self._own_patience_s

    def _has_room(self, user: str) -> bool:
        if self.held.get(user, 0) >= min(self._most, self._free):
            return False
        namespace = _namespace(user)
        return not namespace or self._by_namespace.get(namespace, 0) < self._free

    async def enter(self, user: str, size: int) -> None:
        """Account ``size`` bytes to the user, after waiting until the user is below the limit.

        Raises ApiError 429 if that takes too long.
        """
        if self._has_room(user):
            self.add(user, size)
            return
        queue = self._waiting.setdefault(user, OrderedDict())
        waiter = asyncio.get_running_loop().create_future()
        queue[waiter] = None
        try:
            async with asyncio.timeout(self._patience_s):
                await waiter  # FIRST_BYTES are accounted when it is set
        except BaseException as e:
            if waiter.done() and not waiter.cancelled():
                self.add(user, -FIRST_BYTES)
            else:
                queue.pop(waiter, None)
                if not queue and self._waiting.get(user) is queue:
                    del self._waiting[user]
            if isinstance(e, TimeoutError):
                raise errors.too_many_requests("Too many requests, please try again later.", 1) from None
            raise
        self.add(user, size - FIRST_BYTES)

    def check(self, user: str) -> None:
        """Raise ApiError 429 if the user is at the limit; for callers that cannot wait."""
        if not self._has_room(user):
            raise errors.too_many_requests("Too many requests, please try again later.", 1)

    def add(self, user: str, size: int) -> None:
        """Change the user's bytes by ``size``. Waiting streams continue while there is room."""
        self._count(user, size)
        if size < 0 and self._waiting:
            self._wake_waiting()

    def _count(self, user: str, size: int) -> None:
        self._free -= size
        _add(self.held, user, size)
        namespace = _namespace(user)
        if namespace:
            _add(self._by_namespace, namespace, size)

    def _wake_waiting(self) -> None:
        """Wake the waiting streams that now have room, one per user in turn."""
        woken = True
        while woken and self._free > 0:
            woken = False
            for user in list(self._waiting):
                woken |= self._wake_first(user)

    def _wake_first(self, user: str) -> bool:
        """Wake the user's first waiting stream if it has room. Returns whether it had."""
        queue = self._waiting[user]
        found = self._has_room(user)
        if found:
            first, _ = queue.popitem(last=False)
            if not queue:
                del self._waiting[user]
            if not first.done():
                first.set_result(None)
                self._count(user, FIRST_BYTES)
        return found

    async def taken(self, write: Write, piece: bytes) -> None:
        """Like ``kas.request.http.taken``, but raises NotTakenError if it takes too long."""
        try:
            async with asyncio.timeout(self._patience_s):
                await taken(write, piece)
        except TimeoutError:
            raise NotTakenError from None


room = Room()


class Listing(NamedTuple):
    """One list request: what to scan and how to answer. ``limit`` 0 means all objects, ``revision`` 0 the latest."""

    req: Request
    served: Served
    media: respond.Media
    prefix: str
    matcher: Any
    start: str
    limit: int
    revision: int
    sieve: Callable[[dict[str, Any]], bool] | None = None  # selects objects after they have been converted
    shards: Shards | None = None  # the requested shards, which the answer repeats
    in_thread: bool = False  # whether all pages are read in a thread


def many(store: Store, prefix: str, matcher: Any) -> bool:
    """Return whether a selection under the prefix may have to scan many keys."""
    return matcher is not None and store.count(prefix, SELECTED_FROM) >= SELECTED_FROM


def plain_meta(q: Listing, revision: int) -> dict[str, Any]:
    """Return the ListMeta of a complete list."""
    return _with_shards(q, _meta(q, revision))


def _meta(q: Listing, revision: int) -> dict[str, Any]:
    return {**(q.served.list_meta if q.media.convert is None else {}), "resourceVersion": str(revision)}


def _with_shards(q: Listing, meta: dict[str, Any]) -> dict[str, Any]:
    if q.shards is not None:
        meta["shardInfo"] = {"selector": q.shards.text}
    return meta


def list_meta(q: Listing, result: Any) -> dict[str, Any]:
    """Return the ListMeta of a scan's result, with the fields in upstream's order."""
    meta = _meta(q, result.revision)
    if result.more:
        # As upstream's cache writes it: the rest after the prefix begins with a slash.
        meta["continue"] = continuetoken.encode(result.next_key, q.prefix.removesuffix("/"), result.revision)
        if q.matcher is None and result.remaining > 0:
            meta["remainingItemCount"] = result.remaining
    return _with_shards(q, meta)


def counts(q: Listing) -> bool:
    """Return whether a page reports remainingItemCount: it has a limit, and there is no selector."""
    return bool(q.limit) and q.matcher is None


def next_items(count: int, size: int) -> int:
    """Return the number of items of the next page, given that ``count`` of them had ``size`` bytes."""
    return max(1, min(PAGE_ITEMS, underway.page_bytes * count // max(1, size)))


def large(records: Sequence[Any], least: int = LARGE) -> bool:
    """Return whether stored records have at least ``least`` bytes.

    If so, encoding them other than by copying belongs in the thread pool.
    """
    return size_of(records) >= least


def size_of(records: Sequence[Any]) -> int:
    """Return the number of stored bytes."""
    return sum(map(len, records))


def shown(q: Listing, records: Sequence[Shown]) -> Sequence[Shown]:
    """Return the records of a page converted to the version of the request. Only for conversions that never wait (``Version.streams``)."""
    found = q.served.convert(records)
    assert isinstance(found, Sequence)
    return found


class Ahead:
    """What a source of pieces knows about the piece it gave last.

    ``more`` says that it certainly is not the last one. ``end`` follows the last piece where it was encoded separately.
    """

    __slots__ = ("end", "more")

    def __init__(self) -> None:
        self.more, self.end = False, b""


def stream(q: Listing, pieces: AsyncIterator[bytes], kind: str = JSON, ahead: Ahead | None = None) -> Response:
    """Return a response whose body is sent in pieces, compressed in the thread pool if the client accepts gzip.

    The response ends at the request's deadline. With ``ahead``, a piece that is followed by another, or by a separate end, is written
    without being copied; otherwise every piece is cut.
    """
    headers: Headers = [(b"content-type", respond.CONTENT_TYPES[kind])]
    packed = respond.compresses(q.req)
    if packed:
        headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
    deadline, user = q.req.deadline, q.req.user.name if q.req.user else ""
    room.check(user)

    size = 0

    def hold(now: int) -> None:
        """Account for the current piece. Pages are mostly of one size, so a slightly larger reservation is kept."""
        nonlocal size
        if not now <= size <= now + LEAST_BYTES:
            room.add(user, now - size)
            size = now

    async def run(write: Write) -> None:
        left = max(1.0, deadline - time.monotonic()) if deadline else None
        try:
            with underway:
                async with asyncio.timeout(left):
                    await send(write)
        except (Compacted, TimeoutError) as e:
            # The headers have been sent: abort the connection, so that the client sees a truncated response.
            raise errors.timeout(f"list {q.req.path}: {e or 'the request has run out of time'}", 0) from None
        finally:
            room.add(user, -size)

    async def send(write: Write) -> None:
        time_slice, end = TimeSlice(), b""
        if packed:
            from isal import isal_zlib

            packer = isal_zlib.compressobj(level=1, wbits=31)
            async for piece in pieces:
                hold(len(piece))
                small = await POOL.run(packer.compress, piece)
                if small:
                    await write(small)
                if time_slice.over:  # threads may complete many pieces in one loop iteration, and each one starts the next
                    await time_slice.pause()
            await write(packer.compress(ahead.end if ahead is not None else b"") + packer.flush())
            return
        async for piece in pieces:
            hold(len(piece))
            if end:
                await write(end)
            separate_end, max_write = ahead.end if ahead is not None else b"", underway.write_bytes
            follows = separate_end or (ahead is not None and ahead.more)
            if follows and len(piece) <= max_write:
                end = separate_end
                await write(piece)
            else:
                end = await _all_but_the_end(write, piece, 0 if follows else LEAST_BYTES) or separate_end
            if time_slice.over:  # a client may take every write at once, so the loop has to yield
                await time_slice.pause()
        await taken(write, end)

    return Response(200, headers, stream=run)


async def _all_but_the_end(write: Write, piece: bytes, kept: int) -> bytes:
    """Write a piece that is large or may be the last, except for its last ``kept`` bytes, which are returned.

    The response counts as in progress until its end is taken.
    """
    at, rest = 0, len(piece) - kept
    while at < rest:
        upto = min(rest, at + underway.write_bytes)
        await write(piece[at:upto])
        at = upto
    return piece[at:]
