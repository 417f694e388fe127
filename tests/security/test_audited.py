"""Late lines in an audit log are reported, although no step waits for them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.security.audited import AuditIDs
from tests.security.normal import Normal


def test_events_added_after_the_read_are_late(tmp_path: Path) -> None:
    log, ids = tmp_path / "audit.log", AuditIDs("case", tmp_path)
    event = {"auditID": ids.of(3), "stage": "ResponseComplete"}
    log.write_text(json.dumps(event) + "\n" + json.dumps({**event, "auditID": "another"}) + "\n")
    assert ids.file(log, {}, {"events": [event]}, Normal({})) == {"events": [{**event, "auditID": "<step 3>"}]}
    assert ids.late(log) == 0
    with log.open("a") as file:
        file.write(json.dumps(event) + "\n")
    assert ids.late(log) == 1
