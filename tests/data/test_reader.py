"""Domains read once for many tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from trees import site_task, three_sites

from proud.data.decode import decode_all
from proud.data.reader import MemoryCache
from proud.errors import UserError


def test_a_memory_cache_changes_only_the_number_of_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_sites(tmp_path, 4)
    (tmp_path / "north" / "dog" / "001.png").write_bytes(b"")
    sites = ("central", "north", "south")
    pairs = [(labeled, test) for labeled in sites for test in sites if labeled != test]
    plain = [site_task(tmp_path, labeled=labeled, test=test, skip_bad=True) for labeled, test in pairs]
    reads: list[int] = []
    monkeypatch.setattr(
        "proud.data.reader.decode_all", lambda *args, **kw: reads.append(len(args[0])) or decode_all(*args, **kw)
    )
    memory: MemoryCache = {}
    for (labeled, test), before in zip(pairs, plain, strict=True):
        cached = site_task(tmp_path, labeled=labeled, test=test, skip_bad=True, memory=memory)
        assert cached.report == before.report
        one, other = before.training, cached.training
        assert torch.equal(one.labeled.images, other.labeled.images)
        assert torch.equal(one.labeled.labels, other.labeled.labels)
        assert one.unlabeled[0].ids == other.unlabeled[0].ids
        assert torch.equal(one.unlabeled[0].images, other.unlabeled[0].images)
        assert before.evaluation.test is not None and cached.evaluation.test is not None
        assert torch.equal(before.evaluation.test.images, cached.evaluation.test.images)
        assert torch.equal(before.evaluation.test.labels, cached.evaluation.test.labels)
    assert reads == [8, 8, 8]
    with pytest.raises(UserError, match="north/dog/001"):
        site_task(tmp_path, memory=memory)
