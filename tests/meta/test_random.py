"""UIDs and suffixes: form, distribution, and that a fork does not repeat them."""

from __future__ import annotations

import os
import uuid

from kas.meta import random


def test_uids_are_version_4_and_differ():
    seen = {random.new_uid() for _ in range(3000)}
    assert len(seen) == 3000
    for text in list(seen)[:500]:
        parsed = uuid.UUID(text)
        assert str(parsed) == text and parsed.version == 4 and parsed.variant == uuid.RFC_4122


def test_suffixes_use_the_whole_alphabet():
    letters = "".join(random.random_suffix() for _ in range(2000))
    assert len(letters) == 10000 and set(letters) == set(random.ALPHABET)
    assert len(random.random_suffix(12)) == 12


def test_a_child_does_not_repeat_its_parent():
    random.new_uid()
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, random.new_uid().encode())
        os._exit(0)
    os.wait()
    assert os.read(read, 36).decode() != random.new_uid()
    os.close(read)
    os.close(write)
