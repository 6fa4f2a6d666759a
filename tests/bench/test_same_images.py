"""Results of one table are of the same images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from bench.test_queue import Diary, Make, run
from proud.bench.results import Results
from proud.cli.bench import bench, out_folder
from proud.errors import UserError


def test_other_images_under_the_same_names_are_refused_before_a_step(arguments: Make, tmp_path: Path) -> None:
    given = arguments(combos="one:two", seeds="1")
    data = Path(shutil.copytree(given.name, tmp_path / "tiny"))
    assert bench(arguments(name=str(data), combos="one:two", seeds="1")) == 0
    (row,) = Results(tmp_path / "out" / "results.jsonl").rows()
    assert set(row["content"]) == {"one", "two", "three", "four"}
    for changed in ("three/a/0.png", "two/b/1.png", "one/a/2.png"):
        before = (data / changed).read_bytes()
        Image.new("RGB", (12, 12), (9, 9, 9)).save(data / changed)
        view = Diary()
        outcome = run(arguments(name=str(data), combos="two:four", seeds="1"), view)
        (told,) = outcome.failures.values()
        assert "other images, though of the same name" in told and changed.split("/")[0] in told
        (data / changed).write_bytes(before)
    assert run(arguments(name=str(data), combos="one:two,two:one", seeds="1,2"), Diary()).failures == {}


def test_other_numbers_than_in_lines_of_earlier_versions_are_refused_before_a_step(arguments: Make) -> None:
    given = arguments(combos="one:two")
    assert bench(given) == 0
    path = out_folder(given) / "results.jsonl"
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "content": {}, "images": row["images"] | {"three": 99}}) + "\n")
    steps: list[int] = []
    outcome = run(arguments(combos="one:four"), Diary(lambda job, now: steps.append(now.step)))
    (told,) = outcome.failures.values()
    assert not steps and "unlabeled three" in told


def test_a_result_that_does_not_belong_is_its_job_s_failure(arguments: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Results.add

    def choosy(self: Results, row: dict[str, Any]) -> bool:
        if row["test"] == "two":
            raise UserError("of other images")
        return add(self, row)

    monkeypatch.setattr(Results, "add", choosy)
    outcome = run(arguments(), Diary())
    assert [key.test for key in outcome.failures] == ["two"]
    assert [row["test"] for row in Results(out_folder(arguments()) / "results.jsonl").rows()] == ["one"]
