"""What the pages of a list have in common, in whatever form they leave."""

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

# A page is made, handed over and encrypted while it is in a processor's cache: lists of 13 MB take 4 % less than in pages of 1 MiB. Beside
# more than FEW answers it is as large as what a connection is given at once (``write_bytes``).
PAGE_BYTES, PIECE_BYTES, LEAST_BYTES = 512 << 10, 256 << 10, 64 << 10
# What all answers that are under way may hold as pages: of many each gets smaller ones.
PAGES_BYTES = 32 << 20
# What large pieces of the watches of one user may hold, for how long, and what each counts for while nothing is known of it.
USER_BYTES, PATIENCE_S, FIRST_BYTES = 64 << 20, 60.0, 64 << 10
ALL_BYTES = 256 << 20  # what they hold of all users
# Of the last page, made apart from it: more than one piece of what the HTTP server may hold of an answer (``taken``).
END_BYTES = 64
FEW = 4  # answers at once, which are given as they come
SLACK_BYTES = 16 << 10  # that a page has more than it should, for which it is not cut
FIRST_ITEMS = 128  # nothing is known of their size yet
PAGE_ITEMS = 512  # up to here a scan keeps the GIL
# A page at an old revision undoes what was written since; from here on more is read at once instead of that again and again. Not all
# of it: whoever takes the answer slowly keeps it in memory meanwhile.
WRITES_BEFORE_REST, REST_BYTES = 5000, 8 << 20
SELECTED_FROM = 5000  # keys, from which on what is selected among them is looked for beside the loop: half a microsecond each
COLLECTED_AT_ONCE = 4  # large answers that must be whole before they can be sent

collecting = FairSemaphore(COLLECTED_AT_ONCE)


class Underway:
    """A context manager around each answer that is sent page by page, those of lists and the first states of watches."""

    def __init__(self) -> None:
        self.answers = 0

    def __enter__(self) -> None:
        self.answers += 1

    def __exit__(self, *_: object) -> None:
        self.answers -= 1

    @property
    def page_bytes(self) -> int:
        """How much the next page may be."""
        answers = self.answers
        if answers <= FEW:
            return PAGE_BYTES
        return max(LEAST_BYTES, min(PIECE_BYTES, PAGES_BYTES // (answers + 1)))

    @property
    def write_bytes(self) -> int:
        """How much is given to a connection at once: the HTTP server below keeps some pieces of each that nobody takes, whatever their size
        (60 lists of 20 MB: 430 MB in pieces of 1 MB, 180 in such of 256 KiB)."""
        return (4 if self.answers <= FEW else 1) * self.page_bytes + SLACK_BYTES


underway = Underway()


# Where pages pass that are made on the loop, which for a Table takes some milliseconds: all of a turn together are as long as one
# ``TimeSlice``, whoever's answers they are in.
making = LoopThrottle()


class NotTakenError(Exception):
    """A client has not taken what it was sent."""


def _namespace(user: str) -> str:
    """Of a service account, "" for others."""
    return user[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")[0] if user.startswith(SERVICE_ACCOUNT_PREFIX) else ""


def _add(counts: dict[str, int], key: str, size: int) -> None:
    now = counts.get(key, 0) + size
    if now:
        counts[key] = now
    else:
        counts.pop(key, None)


class Room:
    """What pieces of lists and large ones of watches may hold until their clients have taken them: so much of each user, who waits beyond
    it, one stream after another, before anything is read for it. Somebody who takes nothing makes room for his own others in the end.

    Of what all may hold nobody gets more than is left free, so that whoever comes last finds as much as each of those before him has:
    half of it of one, a third each of two. The service accounts of a namespace count together, too, as who may make one makes hundreds."""

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
        """Holds ``size`` bytes once the user holds less than he may. Raises ApiError 429 where that takes too long."""
        if self._has_room(user):
            self.add(user, size)
            return
        line = self._waiting.setdefault(user, OrderedDict())
        mine = asyncio.get_running_loop().create_future()
        line[mine] = None
        try:
            async with asyncio.timeout(self._patience_s):
                await mine  # as much as FIRST_BYTES is held by then
        except BaseException as e:
            if mine.done() and not mine.cancelled():
                self.add(user, -FIRST_BYTES)
            else:
                line.pop(mine, None)
                if not line and self._waiting.get(user) is line:
                    del self._waiting[user]
            if isinstance(e, TimeoutError):
                raise errors.too_many_requests("Too many requests, please try again later.", 1) from None
            raise
        self.add(user, size - FIRST_BYTES)

    def check(self, user: str) -> None:
        """Raises ApiError 429 where the user has no room, for who cannot wait."""
        if not self._has_room(user):
            raise errors.too_many_requests("Too many requests, please try again later.", 1)

    def add(self, user: str, size: int) -> None:
        """So much more, or less, is held; who waits goes on while there is room."""
        self._count(user, size)
        if size < 0 and self._waiting:
            self._go_on()

    def _count(self, user: str, size: int) -> None:
        self._free -= size
        _add(self.held, user, size)
        namespace = _namespace(user)
        if namespace:
            _add(self._by_namespace, namespace, size)

    def _go_on(self) -> None:
        """Lets those go on who have room now, one of each user in turns."""
        going = True
        while going and self._free > 0:
            going = False
            for user in list(self._waiting):
                going |= self._let_in(user)

    def _let_in(self, user: str) -> bool:
        """Whether the first of this user's could go on."""
        line = self._waiting[user]
        found = self._has_room(user)
        if found:
            first, _ = line.popitem(last=False)
            if not line:
                del self._waiting[user]
            if not first.done():
                first.set_result(None)
                self._count(user, FIRST_BYTES)
        return found

    async def taken(self, write: Write, piece: bytes) -> None:
        """As ``kas.request.http.taken``. Raises NotTakenError where that takes too long."""
        try:
            async with asyncio.timeout(self._patience_s):
                await taken(write, piece)
        except TimeoutError:
            raise NotTakenError from None


room = Room()


class Listing(NamedTuple):
    """One list request: what to scan and how to answer. ``limit`` 0 is all, ``revision`` 0 is now."""

    req: Request
    served: Served
    media: respond.Media
    prefix: str
    matcher: Any
    start: str
    limit: int
    revision: int
    sieve: Callable[[dict[str, Any]], bool] | None = None  # what objects are selected by once they are converted
    shards: Shards | None = None  # the shards that are asked for, which the answer repeats
    aside: bool = False  # whether all of it is read beside the loop


def many(store: Store, prefix: str, matcher: Any) -> bool:
    """Whether there is so much under a prefix that what is selected may be far apart."""
    return matcher is not None and store.count(prefix, SELECTED_FROM) >= SELECTED_FROM


def plain_meta(q: Listing, revision: int) -> dict[str, Any]:
    """ListMeta of a whole list."""
    return _with_shards(q, _meta(q, revision))


def _meta(q: Listing, revision: int) -> dict[str, Any]:
    return {**(q.served.list_meta if q.media.convert is None else {}), "resourceVersion": str(revision)}


def _with_shards(q: Listing, meta: dict[str, Any]) -> dict[str, Any]:
    if q.shards is not None:
        meta["shardInfo"] = {"selector": q.shards.text}
    return meta


def list_meta(q: Listing, result: Any) -> dict[str, Any]:
    """ListMeta of a scan's result, in the order of its fields."""
    meta = _meta(q, result.revision)
    if result.more:
        # As upstream's cache writes it: what follows the prefix begins with a slash.
        meta["continue"] = continuetoken.encode(result.next_key, q.prefix.removesuffix("/"), result.revision)
        if q.matcher is None and result.remaining > 0:
            meta["remainingItemCount"] = result.remaining
    return _with_shards(q, meta)


def counts(q: Listing) -> bool:
    """Whether a page can say how many items remain: it has a limit, and nothing is selected."""
    return bool(q.limit) and q.matcher is None


def next_items(count: int, size: int) -> int:
    """How many items make the next page when ``count`` of them had ``size`` bytes."""
    return max(1, min(PAGE_ITEMS, underway.page_bytes * count // max(1, size)))


def large(records: Sequence[Any], least: int = LARGE) -> bool:
    """Whether stored records, ``least`` bytes of them, are worked on beside the loop, in forms that are not just copied."""
    return size_of(records) >= least


def size_of(records: Sequence[Any]) -> int:
    """Bytes of what is stored."""
    return sum(map(len, records))


def shown(q: Listing, records: Sequence[Shown]) -> Sequence[Shown]:
    """Records of a page that is sent while others are still to be read, converted at once (``Version.streams``)."""
    found = q.served.convert(records)
    assert isinstance(found, Sequence)
    return found


class Ahead:
    """What the pieces of an answer tell of themselves: whether the one that was given last certainly is not the last of all, and what
    follows the last where its end was made apart from it."""

    __slots__ = ("end", "more")

    def __init__(self) -> None:
        self.more, self.end = False, b""


def stream(q: Listing, pieces: AsyncIterator[bytes], kind: str = JSON, ahead: Ahead | None = None) -> Response:
    """A body in pieces, compressed on the way when the client takes it, off the loop. Ends at the request's deadline. With ``ahead`` what
    is followed by more, or by its own end, is given on as it is, where otherwise each piece is cut and so copied."""
    headers: Headers = [(b"content-type", respond.CONTENT_TYPES[kind])]
    packed = respond.compresses(q.req)
    if packed:
        headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
    deadline, user = q.req.deadline, q.req.user.name if q.req.user else ""
    room.check(user)

    size = 0

    def hold(now: int) -> None:
        """Holds as much, or a little more: pages are mostly of one size."""
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
            # The head has left: the connection ends without the answer's end.
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
                if time_slice.over:  # threads tell of many pieces in one turn of the loop, behind each of which the next one is made
                    await time_slice.pause()
            await write(packer.compress(ahead.end if ahead is not None else b"") + packer.flush())
            return
        async for piece in pieces:
            hold(len(piece))
            if end:
                await write(end)
            apart, most = ahead.end if ahead is not None else b"", underway.write_bytes
            follows = apart or (ahead is not None and ahead.more)
            if follows and len(piece) <= most:
                end = apart
                await write(piece)
            else:
                end = await _all_but_the_end(write, piece, 0 if follows else LEAST_BYTES) or apart
            if time_slice.over:  # a client may take whatever comes
                await time_slice.pause()
        await taken(write, end)

    return Response(200, headers, stream=run)


async def _all_but_the_end(write: Write, piece: bytes, kept: int) -> bytes:
    """Writes a piece that is large, or may be the last one; what is left of it has ``kept`` bytes: an answer is under way until its end is
    taken."""
    at, rest = 0, len(piece) - kept
    while at < rest:
        upto = min(rest, at + underway.write_bytes)
        await write(piece[at:upto])
        at = upto
    return piece[at:]
