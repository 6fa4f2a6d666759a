"""The model card says what the run knows, in valid YAML and Markdown, whatever classes and sites are called."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard

from proud import ProUD
from proud.config import Options
from proud.errors import UserError
from proud.model import hub
from proud.model.card import model_card
from proud.model.format import read_run, read_verdicts
from proud.model.load import load_model
from proud.stored import ResultRecord, RunRecord, TrustRecord
from proud.text import in_markdown
from proud.training.run import train
from proud.typed import as_record, read_record
from toy import toy_images, toy_run, toy_settings, toy_task

HOSTILE = (
    "<script>alert(1)</script>",
    "|a|b|\n\n# no",
    "[x](http://evil.example) `--` ---\nlicense: mit",
    "caf\udce9 \x1b[31m",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    task = toy_task(per_class=10)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu")
    train(toy_run("proud", task), toy_settings("proud", epochs=1, pretrain_epochs=1), options, data=task)
    return folder


def card_of(run: RunRecord, folder: Path) -> str:
    result = read_record(folder / "result.json", ResultRecord)
    about = json.loads((folder / "model" / "model.json").read_text())
    return model_card(run, result, read_verdicts(folder), as_record(about["trust"], TrustRecord))


def test_every_run_has_a_card_of_what_it_knows(run: Path) -> None:
    text = (run / "model" / "README.md").read_text(encoding="utf-8")
    about, result = read_run(run), json.loads((run / "result.json").read_text())
    assert text == card_of(about, run)
    for name, domain in about["task"]["domains"].items():
        assert f"| {in_markdown(name)} | {domain['images']} |" in text
    shown = 100 * result["test_accuracy"]
    assert re.search(rf"\| {shown:.0f} % \(\d+–\d+, n = {result['test_images']}\) \|", text)
    for name in about["task"]["classes"]:
        assert re.search(rf"\| {name} \| \d+ \| \d+ % \(.*\) \| \d+ % \(.*\) \|", text)
    for site in read_verdicts(run):
        assert f"- {in_markdown(site['text'])}" in text
    assert "Confidence: not calibrated" in text and "ProUD.from_pretrained" in text
    assert "## Licence\n\nNot chosen yet" in text and f"| torch | {in_markdown(about['versions']['torch'])} |" in text
    assert str(run) not in text


@pytest.mark.parametrize(("sites", "text"), [(0, "one domain\n"), (1, "of 1 other\n"), (2, "of 2 others\n")])
def test_the_number_of_sites(sites: int, text: str, run: Path) -> None:
    about = read_run(run)
    domains = about["task"]["domains"]
    unlabeled = [name for name, domain in domains.items() if domain["role"] == "unlabeled"]
    for name in unlabeled[sites:]:
        del domains[name]
    assert text in card_of(about, run)


def test_the_front_matter_is_what_a_hub_reads(run: Path) -> None:
    data = ModelCard.load(run / "model" / "README.md").data
    assert (data.library_name, data.pipeline_tag, data.license) == ("proud", "image-classification", "unknown")
    (result,) = data.eval_results or []
    stored = json.loads((run / "result.json").read_text())
    assert result.metric_type == "accuracy"
    assert result.metric_value == pytest.approx(stored["test_accuracy"], abs=1e-4)


def test_names_of_any_content_are_plain_text(run: Path) -> None:
    """Domains, classes and data are named by folders, which may come from anyone."""
    about = read_run(run)
    old = about["task"]["classes"]
    new = dict(zip(old, HOSTILE, strict=True))
    text = json.dumps(about)
    for name, hostile in new.items():
        text = text.replace(json.dumps(name), json.dumps(hostile))
    changed = as_record(json.loads(text), RunRecord)
    task = changed["task"]
    task["data"] = "/home/me/" + HOSTILE[2].replace("/", "")
    roles = {domain["role"]: domain for domain in task["domains"].values()}
    task["domains"] = {HOSTILE[0]: roles["labeled"], HOSTILE[1]: roles["unlabeled"], HOSTILE[2]: roles["test"]}
    card = card_of(changed, run)
    card.encode()
    _, front, body = card.split("---\n", 2)
    assert ModelCard(card).data.license == "unknown" and front.count("\n") == 5
    assert "/home/me" not in card and "\x1b" not in card
    rest = re.sub(r"```.*?```", "", re.sub(r"\\[!-/:-@\[-`{-~]", "", body), flags=re.DOTALL)
    assert "<" not in rest and "[" not in rest and "http:" not in rest
    assert [line for line in body.splitlines() if line.startswith("#")] == [
        line for line in card_of(about, run).splitlines() if line.startswith("#")
    ]
    tables = [line for line in rest.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} <= {3, 4, 5, 7}


@pytest.mark.parametrize(
    ("text", "inert"),
    [
        ("x-ray, 50 % (old)", "x-ray, 50 % (old)"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("a|b <b> [c](d) `e` *f* _g_ &amp;", r"a\|b \<b\> \[c\](d) \`e\` \*f\* \_g\_ \&amp;"),
        ("https://x.example WWW.x.example me@x.example", r"https\://x.example WWW\.x.example me\@x.example"),
        ("two\n\nlines \x1b\u202e", r"two lines \\x1b\\u202e"),
    ],
)
def test_text_in_markdown(text: str, inert: str) -> None:
    assert in_markdown(text) == inert


def test_the_card_travels_with_the_model(run: Path, tmp_path: Path) -> None:
    """An edited one, too: the licence is for its owner to fill in."""
    model = tmp_path / "model"
    shutil.copytree(run / "model", model)
    edited = (model / "README.md").read_text(encoding="utf-8").replace("Not chosen yet.", "MIT.")
    (model / "README.md").write_text(edited, encoding="utf-8")
    load_model(model, "cpu").save(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text(encoding="utf-8") == edited
    (model / "README.md").unlink()
    load_model(model, "cpu").save(tmp_path / "again", overwrite=True)
    assert not (tmp_path / "again" / "README.md").exists()


@pytest.mark.parametrize("place", ["", "model"])
def test_from_pretrained_reads_the_folder(place: str, run: Path, tmp_path: Path) -> None:
    images = toy_images(1, 2)[0]
    model = ProUD.from_pretrained(run / place, device="cpu")
    assert model.method == "proud" and model.classes_.tolist() == list(load_model(run, "cpu").classes)
    np.testing.assert_array_equal(model.predict_proba(images), load_model(run, "cpu").predict_proba(images))
    model.save(tmp_path / "mine")
    assert (ProUD.from_pretrained(str(tmp_path / "mine")).predict(images) == model.predict(images)).all()


def test_from_a_hub_only_the_files_of_a_model_are_taken(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision, allow_patterns))
        return str(run / "model")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert ProUD.from_pretrained("someone/a-model", device="cpu", revision="v1").method == "proud"
    files = ["README.md", "manifest.json", "model.json", "model.safetensors", "prototypes.safetensors"]
    assert asked == [("someone/a-model", "v1", files)]

    def unreachable(*arguments: object, **more: object) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(UserError, match="There is no folder someone/a-model, and the hub has no such model"):
        ProUD.from_pretrained("someone/a-model")
    for name in ("../escape", "a/b/c", "/nowhere/else", "https://x.example/y"):
        assert hub.find_model(name) == Path(name)
