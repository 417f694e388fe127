"""The machine's copy of etcd's content: an LMDB environment with a note about its origin.

``open_replica`` is for the process that writes the copy, before there are readers. A copy is used again if its note names the
same cluster and form, the machine was not rebooted (the copy is never synced, so a power failure may leave any part of it),
and the cluster still has the history since; otherwise it is discarded.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

FORMAT = 7
NOTE = "replica.of"

log = logging.getLogger("kas.store.etcd")


@dataclass(frozen=True)
class Note:
    """The origin of a copy: etcd's cluster, the keys' prefix, the form of its records. ``raft_term``, the highest seen, only
    decreases if the cluster was restored from a backup. ``boot`` identifies the boot of the machine."""

    cluster_id: int
    prefix: str
    raft_term: int
    boot: str
    format: int = FORMAT

    def misfit(self, other: Note) -> str:
        """Returns why an earlier copy with the note ``other`` cannot be continued; "" if it can: it is of the same cluster,
        which has not gone back."""
        if other.format != self.format:
            return f"it has form {other.format}, and this version of kas reads and writes form {self.format}"
        if other.cluster_id != self.cluster_id:
            return f"it is of the cluster {other.cluster_id:x}, and this one is {self.cluster_id:x}"
        if other.prefix != self.prefix:
            return f"it is of the keys below {other.prefix or '/'}, and not {self.prefix or '/'}"
        if other.boot != self.boot:
            return "the machine was started anew since, and it is never synced"
        if other.raft_term > self.raft_term:
            return f"the cluster went back: its raft term was {other.raft_term}, and is {self.raft_term}"
        return ""


def boot_id() -> str:
    """Returns the identifier of the current boot; "-" if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


def read_note(path: Path) -> Note | None:
    """Returns the note of a completed copy; None if there is none or it cannot be parsed."""
    try:
        cluster_id, raft_term, form, boot, prefix = (path / NOTE).read_text().rstrip("\n").split(" ", 4)
        return Note(int(cluster_id), prefix, int(raft_term), boot, int(form))
    except (OSError, ValueError):
        return None


def write_note(path: Path, note: Note) -> None:
    """Marks the copy in ``path`` as complete, with its origin."""
    new = path / (NOTE + ".new")
    new.write_text(f"{note.cluster_id} {note.raft_term} {note.format} {note.boot} {note.prefix}\n")
    os.replace(new, path / NOTE)


def disown(path: Path) -> None:
    """Marks the copy in ``path`` as one that cannot be continued, whatever the state of the cluster is later."""
    (path / NOTE).unlink(missing_ok=True)


def discard(path: Path, why: str) -> None:
    """Deletes the copy."""
    if path.exists():
        log.warning("the replica in %s is discarded: %s", path, why)
        disown(path)  # first, so that an incomplete deletion leaves no valid copy
        shutil.rmtree(path)
