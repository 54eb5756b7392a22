"""What several tests of storage share."""

from __future__ import annotations

import threading

import pytest

from relive.storage import files


@pytest.fixture
def disk(monkeypatch):
    """A disk that takes nothing until it is opened."""
    opened = threading.Event()
    write_all = files.write_all

    def slow(file, chunk):
        assert opened.wait(60)
        write_all(file, chunk)

    monkeypatch.setattr(files, "write_all", slow)
    yield opened
    opened.set()
