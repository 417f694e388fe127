"""The machine's copy of what etcd holds: an LMDB environment with a note on whose copy it is.

``open_replica`` is for the one who writes it, before anybody reads it. A copy is used again when its note names the same cluster and the
same form, the machine was not started anew (it is never synced, so a power cut may leave anything of it), and the cluster still has the
history since; else it is thrown away.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

FORMAT = 6
NOTE = "replica.of"

log = logging.getLogger("kas.store.etcd")


@dataclass(frozen=True)
class Note:
    """Whose copy it is: etcd's cluster, the keys' prefix, the form of the records here. ``raft_term``, the highest seen, never falls unless
    the cluster was restored from a backup. ``boot``: while the machine was up for which time."""

    cluster_id: int
    prefix: str
    raft_term: int
    boot: str
    format: int = FORMAT

    def misfit(self, other: Note) -> str:
        """Why a copy with the note ``other``, made earlier, cannot be gone on with; "" when it can: it is one of the same cluster, which
        has not gone back."""
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
    """What names the time since the machine was started; "-" where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


def read_note(path: Path) -> Note | None:
    """The note of a copy that was finished; None when there is none or it is not understood."""
    try:
        cluster_id, raft_term, form, boot, prefix = (path / NOTE).read_text().rstrip("\n").split(" ", 4)
        return Note(int(cluster_id), prefix, int(raft_term), boot, int(form))
    except (OSError, ValueError):
        return None


def write_note(path: Path, note: Note) -> None:
    """The copy in ``path`` is complete, and whose it is."""
    new = path / (NOTE + ".new")
    new.write_text(f"{note.cluster_id} {note.raft_term} {note.format} {note.boot} {note.prefix}\n")
    os.replace(new, path / NOTE)


def disown(path: Path) -> None:
    """The copy in ``path`` is not one that can be gone on with, whatever the cluster says later."""
    (path / NOTE).unlink(missing_ok=True)


def discard(path: Path, why: str) -> None:
    """Throws the copy away."""
    if path.exists():
        log.warning("the replica in %s is discarded: %s", path, why)
        disown(path)  # first: half a copy must not be taken for one
        shutil.rmtree(path)
