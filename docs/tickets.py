"""A virtual resource: the rows of an SQLite table as objects of an API, beside everything that kas has itself.

    python docs/tickets.py /var/lib/tickets/data      # then: kubectl --kubeconfig /var/lib/tickets/data/admin.kubeconfig get tickets -w

Each write adds a row to a log, whose number is the resourceVersion: that is what a watch goes on from, and by which two writers notice one
another. Workers are processes of their own, and each opens the file for itself.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from functools import cached_property
from pathlib import Path
from typing import Any

import kas
from kas.meta import errors
from kas.registry.rest import AlreadyExists, Conflict, Context, Event, Obj, ObjectList

GROUP = "helpdesk.example.com"
TABLES = """
create table if not exists tickets (namespace text, name text, version integer, object text, primary key (namespace, name));
create table if not exists log (version integer primary key autoincrement, type text, namespace text, object text);
"""
LOOK_EVERY_S, LOG_ROWS, PAGE = 0.1, 10_000, 100


class Tickets:
    """The storage: what it does takes microseconds, so that it need not wait elsewhere."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _db(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute("pragma journal_mode=wal")
        db.execute("pragma busy_timeout=10000")
        db.executescript(TABLES)
        return db

    def get(self, ctx: Context, name: str) -> Obj | None:
        """One ticket."""
        row = self._db.execute("select object, version from tickets where namespace=? and name=?", (ctx.namespace, name)).fetchone()
        return None if row is None else shown(*row)

    def list(self, ctx: Context) -> ObjectList:
        """The tickets of a namespace, or all, as they are at one moment."""
        with self._db:
            self._db.execute("begin")
            where, values = ("where namespace=?", (ctx.namespace,)) if ctx.namespace else ("", ())
            rows = self._db.execute(f"select object, version from tickets {where}", values).fetchall()
            return ObjectList([shown(*row) for row in rows], str(self._newest()))

    def create(self, ctx: Context, obj: Obj) -> Obj:
        """Keep a new one."""
        with self._db:
            self._db.execute("begin immediate")
            version, text = self._logged("ADDED", obj)
            try:
                self._db.execute("insert into tickets values (?, ?, ?, ?)", (*key(obj), version, text))
            except sqlite3.IntegrityError:
                raise AlreadyExists from None
        return shown(text, version)

    def update(self, ctx: Context, obj: Obj, old: Obj) -> Obj:
        """Keep another in its place, if that is still there."""
        with self._db:
            self._db.execute("begin immediate")
            version, text = self._logged("MODIFIED", obj)
            where = "namespace=? and name=? and version=?"
            values = (version, text, *key(obj), old["metadata"]["resourceVersion"])
            if not self._db.execute(f"update tickets set version=?, object=? where {where}", values).rowcount:
                raise Conflict
        return shown(text, version)

    def delete(self, ctx: Context, obj: Obj) -> None:
        """Let one go, if it is still what it was."""
        with self._db:
            self._db.execute("begin immediate")
            self._logged("DELETED", obj)
            values = (*key(obj), obj["metadata"]["resourceVersion"])
            if not self._db.execute("delete from tickets where namespace=? and name=? and version=?", values).rowcount:
                raise Conflict

    async def watch(self, ctx: Context, resource_version: str) -> AsyncIterator[Event]:
        """What the log says from there on; what was forgotten is 410, and the client lists anew."""
        if resource_version:
            last = int(resource_version)
        else:
            found = self.list(ctx)
            last = int(found.resource_version)
            for obj in found.items:
                yield Event("ADDED", obj)
        while True:
            oldest = self._db.execute("select min(version) from log").fetchone()[0] or 1
            if last + 1 < oldest:
                raise errors.expired(f"too old resource version: {last} ({oldest})")
            rows = self._db.execute("select version, type, namespace, object from log where version>? limit ?", (last, PAGE)).fetchall()
            for version, kind, namespace, text in rows:
                last = version
                if ctx.namespace in ("", namespace):
                    yield Event(kind, shown(text, version))
            if not rows:
                await asyncio.sleep(LOOK_EVERY_S)

    def _logged(self, kind: str, obj: Obj) -> tuple[int, str]:
        """The version of a write, and the object as it is kept; within its transaction."""
        text = json.dumps(obj)
        cursor = self._db.execute("insert into log (type, namespace, object) values (?, ?, ?)", (kind, key(obj)[0], text))
        version = cursor.lastrowid or 0
        self._db.execute("delete from log where version<=?", (version - LOG_ROWS,))
        return version, text

    def _newest(self) -> int:
        found = self._db.execute("select seq from sqlite_sequence where name='log'").fetchone()
        return int(found[0]) if found is not None else 0


def key(obj: Obj) -> tuple[str, str]:
    """(namespace, name)."""
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def shown(text: str, version: int) -> Obj:
    """A row as an object."""
    obj: Obj = json.loads(text)
    obj["metadata"]["resourceVersion"] = str(version)
    return obj


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object", "required": ["title"],
            "properties": {
                "title": {"type": "string", "maxLength": 100}, "priority": {"type": "integer", "minimum": 1, "maximum": 5, "default": 3},
            },
        },
        "status": {"type": "object", "properties": {"state": {"type": "string", "enum": ["open", "closed"]}}},
    },
}  # fmt: skip


def build(data_dir: str, **flags: Any) -> kas.Server:
    """A whole kas, and tickets."""
    tickets = kas.VirtualResource(
        GROUP, "v1", "tickets", "Ticket", Tickets(Path(data_dir).absolute().parent / "tickets.db"), schema=SCHEMA, status=True,
        columns=[
            {"name": "Title", "type": "string", "jsonPath": ".spec.title"},
            {"name": "State", "type": "string", "jsonPath": ".status.state"},
        ],
        short_names=["tk"], categories=["all"],
    )  # fmt: skip
    return kas.Server(kas.Options(data_dir=data_dir, **flags), resources=[tickets])


if __name__ == "__main__":
    sys.exit(build(sys.argv[1], **dict(flag.split("=") for flag in sys.argv[2:])).run())
