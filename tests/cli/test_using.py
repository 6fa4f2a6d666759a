"""Commands that use a trained model: predict, evaluate, label-next."""

from __future__ import annotations

import csv
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.conftest import ONE_EPOCH, train
from proud import manifest
from proud.cli import main as cli
from proud.errors import UserError
from proud.model import reading
from proud.model.evaluate import evaluate_domain
from proud.model.load import load_model
from proud.model.seen import is_own_data
from proud.report.page import write_report
from toy import CLASSES, edit_json, toy_images, write_folders


def test_predict_labels_new_images(trained: Path, tmp_path: Path) -> None:
    images, labels = toy_images(1, per_class=3, seed=9)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for row, image in enumerate(images):
        suffix = ".jpg" if row % 2 else ".png"
        Image.fromarray(image).save(tmp_path / ("deep/er" if row % 3 else "") / f"{row:02d}{suffix}", quality=95)
    (tmp_path / "notes.txt").write_text("not an image")
    out = tmp_path / "predictions.csv"
    assert cli.run(["predict", str(trained), str(tmp_path), "--out", str(out), "--device", "cpu"]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "label", "confidence", "set", "abstain"]
    assert len(rows) == len(images)
    right = [row["label"] == labels[int(Path(row["path"]).stem)] for row in rows]
    assert np.mean(right) > 0.8
    assert all(0.25 <= float(row["confidence"]) <= 1 for row in rows)
    with pytest.raises(UserError, match="exists: choose another --out or add --overwrite"):
        cli.run(["predict", str(trained), str(tmp_path), "--out", str(out)])
    one = next(tmp_path.glob("*.png"))
    assert cli.run(["predict", str(trained), str(one), "--out", str(out), "--overwrite"]) == 0
    assert len(out.read_text().splitlines()) == 2


def test_predict_names_or_skips_bad_images(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(toy_images(0, 1)[0][0]).save(tmp_path / "good.png")
    (tmp_path / "empty.png").touch()
    out = tmp_path / "p.csv"
    with pytest.raises(UserError, match=r"empty\.png"):
        cli.run(["predict", str(trained), str(tmp_path), "--out", str(out)])
    assert not out.exists()
    assert cli.run(["predict", str(trained), str(tmp_path), "--out", str(out), "--skip-bad"]) == 0
    beside = tmp_path / "p-left-out.csv"
    expected = f"1 unreadable image skipped → {beside}\n  {tmp_path / 'empty.png'}: the file is empty (0 bytes)\n"
    assert expected in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 2
    assert beside.read_text().splitlines() == ["path,reason", f"{tmp_path / 'empty.png'},the file is empty (0 bytes)"]
    out.unlink()
    with pytest.raises(UserError, match=r"p-left-out\.csv exists: choose another --out or add --overwrite"):
        cli.run(["predict", str(trained), str(tmp_path), "--out", str(out), "--skip-bad"])
    good = str(tmp_path / "good.png")
    assert cli.run(["predict", str(trained), good, "--out", str(out), "--overwrite"]) == 0
    assert out.exists() and not beside.exists()
    (tmp_path / "good.png").unlink()
    with pytest.raises(UserError, match=r"The only image cannot be read: .*empty\.png"):
        cli.run(["predict", str(trained), str(tmp_path), "--out", str(tmp_path / "q.csv"), "--skip-bad"])


def test_predict_without_images_or_without_a_run(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Name the images"):
        cli.run(["predict", str(trained)])
    with pytest.raises(UserError, match="no such file or folder"):
        cli.run(["predict", str(trained), str(tmp_path / "nowhere")])
    with pytest.raises(UserError, match="No images found"):
        cli.run(["predict", str(trained), str(tmp_path)])
    with pytest.raises(UserError, match="There is no folder"):
        cli.run(["predict", str(tmp_path / "norun"), str(tmp_path)])
    with pytest.raises(UserError, match="not a run's folder"):
        cli.run(["predict", str(tmp_path), str(tmp_path)])


def test_evaluate_measures_a_labeled_domain(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["evaluate", str(trained), "--domain", "north", "--device", "cpu"]) == 0
    output = capsys.readouterr().out
    assert "48" in output
    assert all(name in output for name in CLASSES)
    write_folders(tmp_path, {"elsewhere": 3}, per_class=2)
    assert cli.run(["evaluate", str(trained), "--data", str(tmp_path), "--domain", "elsewhere", "--device", "cpu"]) == 0
    with pytest.raises(UserError, match=r"no domain 'nort'.*Did you mean 'north'"):
        cli.run(["evaluate", str(trained), "--domain", "nort"])
    shutil.move(tmp_path / "elsewhere" / "plain", tmp_path / "elsewhere" / "unheard")
    with pytest.raises(UserError, match="labels that are unknown to the model: unheard"):
        cli.run(["evaluate", str(trained), "--data", str(tmp_path), "--domain", "elsewhere"])
    for path in sorted((tmp_path / "elsewhere").glob("*/*.png")):
        shutil.move(path, tmp_path / "elsewhere" / f"{path.parent.name}-{path.name}")
    with pytest.raises(UserError, match="have no label"):
        cli.run(["evaluate", str(trained), "--data", str(tmp_path), "--domain", "elsewhere"])


def test_evaluate_takes_the_held_out_site_of_the_run(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(data, tmp_path / "x", *ONE_EPOCH, test="south") == 0
    assert cli.run(["evaluate", str(tmp_path / "x"), "--device", "cpu"]) == 0
    assert f"{tmp_path / 'x'} on south" in capsys.readouterr().out
    with pytest.raises(
        UserError, match=r"Name the domain to measure on: --domain SITE\. The domains of .* are: central"
    ):
        cli.run(["evaluate", str(trained), "--device", "cpu"])


def test_evaluate_gives_intervals_and_compares_two_runs(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, out = tmp_path / "other", tmp_path / "out.json"
    assert train(data, other, *ONE_EPOCH) == 0
    capsys.readouterr()
    command = ["evaluate", str(trained), "--domain", "north", "--device", "cpu", "--out", str(out)]
    assert cli.run([*command, "--against", str(other)]) == 0
    output, found = " ".join(capsys.readouterr().out.split()), json.loads(out.read_text())
    assert ", n = 48)" in output and ", n = 12)" in output and "mean of the classes" in output
    low, high = found["interval"]
    assert 0 <= low <= found["accuracy"] <= high <= 1
    balanced, recalls = found["scores"]["balanced_accuracy"], [each["accuracy"] for each in found["per_class"]]
    assert balanced["value"] == pytest.approx(sum(recalls) / len(recalls)) and "macro F1" in output
    assert found["scores"]["auroc"]["interval"][0] < found["scores"]["auroc"]["value"]
    alone = evaluate_domain(other, "north", device="cpu")
    difference = found["against"]["difference"]
    assert difference["value"] == pytest.approx(found["accuracy"] - alone.accuracy, abs=1e-6)
    assert difference["low"] < difference["value"] < difference["high"] and difference["images"] == 48
    assert f"minus that of {other}" in output.replace(" ", "").replace("minusthatof", "minus that of ")


def test_names_that_look_like_formulas_are_escaped(tmp_path: Path) -> None:
    from proud.files import write_table

    write_table(tmp_path / "t.csv", ["path", "label"], [["=cmd()", "+1"], ["plain", "@x"]])
    assert (tmp_path / "t.csv").read_text().splitlines()[1:] == ["'=cmd(),'+1", "plain,'@x"]


def test_predict_repeats_the_run_s_warnings_and_checks_its_own_answers(
    data: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    edit_json(copy / "model" / "model.json", warnings=["The network learned nothing."])
    cli.run(["predict", str(copy), str(data / "central"), "--out", str(tmp_path / "1.csv"), "--device", "cpu"])
    output = capsys.readouterr().out
    assert "Warning: The network learned nothing." in output and "are classified as" not in output
    same = tmp_path / "same"
    same.mkdir()
    for place in range(16):
        Image.fromarray(np.full((16, 16, 3), 200, np.uint8)).save(same / f"{place}.png")
    cli.run(["predict", str(trained), str(same), "--out", str(tmp_path / "2.csv"), "--device", "cpu"])
    output = capsys.readouterr().out
    assert "Warning: 16 of 16 images are classified as" in output and "learned nothing" not in output
    edit_json(copy / "model" / "model.json", warnings=[1])
    with pytest.raises(UserError, match="warnings"):
        cli.run(["predict", str(copy), str(same), "--out", str(tmp_path / "3.csv"), "--device", "cpu"])


def test_evaluate_warns_about_domains_of_the_training(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["evaluate", str(trained), "--domain", "central", "--device", "cpu"])
    assert "central is the labeled domain" in " ".join(capsys.readouterr().out.split())
    cli.run(["evaluate", str(trained), "--domain", "north", "--device", "cpu"])
    output = " ".join(capsys.readouterr().out.split())
    assert "is the labeled domain" not in output
    assert "north is an unlabeled domain: the model was trained on these images, without their labels" in output


def test_evaluate_warns_about_copies_of_training_images(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    about = json.loads((run / "run.json").read_text())
    about["task"]["domains"]["north"]["role"] = "test"
    about["task"]["test_images_also_in_training"] = 33
    edit_json(run / "run.json", task=about["task"])
    cli.run(["evaluate", str(run), "--domain", "north", "--device", "cpu"])
    output = " ".join(capsys.readouterr().out.split())
    assert "Warning: 33 of the 48 images of north are also trained on: its accuracy says little" in output
    assert "unlabeled domain" not in output


@pytest.mark.parametrize("place", ["same", "link", "copy", "other"])
def test_the_run_s_data_is_recognised_under_any_path(
    place: str, trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = data / "north" / ".." if place == "same" else tmp_path / place
    if place == "link":
        where.symlink_to(data)
    elif place != "same":
        shutil.copytree(data, where)
    if place == "other":
        next((where / "central").rglob("*.png")).unlink()
    cli.run(["evaluate", str(trained), "--data", str(where), "--domain", "central", "--device", "cpu"])
    warned = "central is the labeled domain" in " ".join(capsys.readouterr().out.split())
    assert warned == (place != "other")


def test_other_images_under_the_same_path_are_not_mistaken_for_the_run_s(
    trained: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, there, elsewhere = tmp_path / "run", tmp_path / "there", tmp_path / "elsewhere"
    shutil.copytree(trained, run)
    about = json.loads((run / "run.json").read_text())
    about["config"]["data"] = "images"
    edit_json(run / "run.json", config=about["config"])
    edit_json(run / "model" / "model.json", config=about["config"])
    shutil.copytree(data, there / "images")
    shutil.copytree(data, elsewhere / "images")
    for domain in ("central", "north"):
        next((elsewhere / "images" / domain).rglob("*.png")).unlink()
    for place, own in ((there, True), (elsewhere, False)):
        monkeypatch.chdir(place)
        cli.run(["evaluate", str(run), "--domain", "central", "--device", "cpu"])
        assert ("is the labeled domain" in " ".join(capsys.readouterr().out.split())) == own
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cli.run(["label-next", str(run), "--k", "1", "--out", "x.csv", "--device", "cpu"])
        assert any("differ from those that the run" in str(each.message) for each in caught) == (not own)


def test_a_domain_is_evaluated_piece_by_piece(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "measured.json"
    command = ["evaluate", str(trained), "--domain", "north", "--device", "cpu", "--out", str(out), "--overwrite"]
    found, sizes = [], []
    decode_all = reading.decode_all
    monkeypatch.setattr(
        reading, "decode_all", lambda some, *a, **k: sizes.append(len(some)) or decode_all(some, *a, **k)
    )
    for piece in (2048, 7):
        monkeypatch.setattr(reading, "PIECE", piece)
        cli.run(command)
        found.append(json.loads(out.read_text()))
    assert found[0] == found[1]
    whole, *pieces = sizes
    assert max(pieces) == 7 and sum(pieces) == whole == found[0]["images"]


def test_paths_of_the_run_s_own_data() -> None:
    assert is_own_data({"data": "embedded"}, "embedded", "")
    assert not is_own_data({"data": "embedded"}, "./embedded", "")
    assert not is_own_data({"data": "python"}, "python", "")
    assert not is_own_data({}, "", "")
    assert is_own_data({"data": "pacs", "root": "/x/pacs"}, "PACS", "/x/y/../pacs")
    assert not is_own_data({"data": "pacs", "root": "/x/pacs"}, "pacs", "/y/pacs")


def test_evaluate_names_skipped_images(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folders(tmp_path / "data", {"north": 1}, per_class=2)
    first, second, *others = sorted(root.rglob("*.png"))
    first.write_bytes(b"no picture")
    second.write_bytes(b"")
    command = ["evaluate", str(trained), "--data", str(root), "--domain", "north", "--device", "cpu"]
    with pytest.raises(UserError, match="2 images cannot be used"):
        cli.run(command)
    capsys.readouterr()
    assert cli.run([*command, "--skip-bad"]) == 0
    reason = "not an image, or an unsupported format"
    named = f"2 unreadable images skipped:\n  {first}: {reason}\n  {second}: the file is empty"
    assert named in capsys.readouterr().out
    found = evaluate_domain(trained, "north", data=str(root), skip_bad=True, device="cpu")
    assert ([file.path for file in found.skipped], found.images) == ([str(first), str(second)], 6)
    for path in others:
        path.write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"None of the 8 images can be read; the first: .*\.png"):
        cli.run([*command, "--skip-bad"])


def test_a_folder_of_class_folders_is_one_site(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", str(trained), "--device", "cpu", "--data"]
    assert cli.run([*command, str(data), "--domain", "south"]) == 0
    expected = capsys.readouterr().out
    assert cli.run([*command, str(data / "south")]) == 0
    assert capsys.readouterr().out == expected, "its accuracy, and that it was trained on"
    assert cli.run([*command, str(data / "south"), "--domain", "south"]) == 0
    with pytest.raises(UserError, match=r"--domain SITE. The domains of .* are: central, north, south"):
        cli.run([*command, str(data)])
    write_folders(tmp_path, {"west": 3}, per_class=1)
    assert cli.run([*command, str(tmp_path)]) == 0, "the only domain"


def test_links_are_followed_on_request(trained: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "new" / "south").mkdir(parents=True)
    (tmp_path / "new" / "south" / "plain").symlink_to(data / "south" / "plain")
    out = ["--device", "cpu", "--follow-links", "--out", str(tmp_path / "out")]
    assert cli.run(["predict", str(trained), str(tmp_path / "new"), *out]) == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 7
    assert cli.run(["evaluate", str(trained), "--data", str(tmp_path / "new"), *out, "--overwrite"]) == 0
    assert json.loads((tmp_path / "out").read_text())["images"] == 6


def test_evaluate_names_links_that_it_does_not_follow(trained: Path, tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"north": 1}, per_class=2)
    outside = write_folders(tmp_path / "outside", {"north": 1}, per_class=2)
    (root / "north" / "more").symlink_to(outside / "north" / "plain")
    (root / "east").mkdir()
    (root / "east" / "plain").symlink_to(outside / "north" / "plain")
    command = ["evaluate", str(trained), "--data", str(root), "--device", "cpu", "--domain"]
    with pytest.warns(UserWarning, match=r"north: 1 link that leaves the folder is not followed \(north/more\)"):
        assert cli.run([*command, "north"]) == 0
    with pytest.raises(UserError, match=r"'east' in .* has no images. Links that leave .*: east/plain"):
        cli.run([*command, "east"])


def test_label_next_can_skip_bad_images(data: Path, trained: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(data, root)
    (root / "north" / "broken.png").write_bytes(b"no picture")
    command = ["label-next", str(trained), "--data", str(root), "--out", str(tmp_path / "x.csv"), "--device", "cpu"]
    with pytest.raises(UserError, match="--skip-bad"):
        cli.run(command)
    assert cli.run([*command, "--skip-bad"]) == 0


def test_nearly_black_images_give_a_warning(trained: Path, tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"north": 1}, per_class=2)
    for path in root.rglob("*.png"):
        deep = np.asarray(Image.open(path).convert("L")).astype(np.uint16) * 16  # 12 bits in 16
        Image.fromarray(deep).save(path)
    command = ["evaluate", str(trained), "--data", str(root), "--domain", "north", "--device", "cpu"]
    with pytest.warns(UserWarning, match=r"8 of 8 images are nearly black: no value above \d+ of 255"):
        cli.run(command)
    command = ["predict", str(trained), str(root), "--out", str(tmp_path / "p.csv"), "--device", "cpu"]
    with pytest.warns(UserWarning, match=r"8 of 8 images are nearly black: no value above \d+ of 255"):
        cli.run(command)


def test_the_probability_of_every_class(trained: Path, data: Path, tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "p.csv"
    shutil.copytree(trained, copy)
    classes = ["=cmd()", "path", "two\nlines", "caf\udce9"]
    edit_json(copy / "model" / "model.json", classes=classes)
    command = ["predict", str(copy), str(data / "south"), "--out", str(out), "--device", "cpu", "--probabilities"]
    assert cli.run(command) == 0
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ["p(=cmd())", "p(path)", "p(two\nlines)", "p(caf\\udce9)"]
    assert list(rows[0]) == ["path", "label", "confidence", "set", "abstain", *columns]
    found = np.array([[float(row[column]) for column in columns] for row in rows])
    np.testing.assert_allclose(found, load_model(copy, "cpu").predict_proba(data / "south"), rtol=1e-5)
    np.testing.assert_allclose(found.max(1), [float(row["confidence"]) for row in rows], atol=1e-6)


def test_evaluate_writes_all_numbers(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = tmp_path / "data", tmp_path / "new" / "north.json"
    shutil.copytree(data, root)
    (root / "north" / "plain" / "broken.png").write_bytes(b"no picture")
    command = ["evaluate", str(trained), "--data", str(root), "--domain", "north", "--device", "cpu", "--skip-bad"]
    assert cli.run([*command, "--out", str(out), "--risk", "0.1"]) == 0
    output = capsys.readouterr().out
    assert f"All numbers: {out}" in output
    kept = json.loads(out.read_text())
    assert (kept["model"], kept["data"], kept["domain"]) == (str(trained), str(root), "north")
    assert kept["images"] == 48 and f"{100 * kept['accuracy']:.1f} %" in output
    assert [each["class"] for each in kept["per_class"]] == list(CLASSES)
    assert all(each["accuracy"] == each["right"] / 12 for each in kept["per_class"])
    assert kept["asked"] == {"coverage": 0.9, "risk": 0.1, "sets": "lac"}
    assert f"with {kept['trust']['set_size']:.2f} classes" in output
    assert [Path(file["path"]).name for file in kept["left_out"]] == ["broken.png"]
    assert {"proud", "torch"} <= kept["versions"].keys() and "commit" in kept and "command" in kept
    with pytest.raises(UserError, match=r"north\.json exists: choose another --out or add --overwrite"):
        cli.run([*command, "--out", str(out)])
    assert cli.run([*command, "--out", str(out), "--overwrite"]) == 0
    assert json.loads(out.read_text())["asked"]["risk"] == 0.05


def test_missing_calibration_is_mentioned(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use = ["predict", str(trained), str(data / "south"), "--out", str(tmp_path / "p.csv"), "--device", "cpu"]
    measure = ["evaluate", str(trained), "--domain", "north", "--device", "cpu"]
    count = json.loads((trained / "model" / "model.json").read_text())["trust"]["images"]
    for command in (use, measure):
        cli.run(command)
        text = f"confidence: not calibrated (this needs 30 validation images, training had {count})"
        assert text in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_the_accuracy_of_pseudo_labels_names_how_many_images_it_covers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=6)
    shutil.move(root / "north" / "plain", root / "north" / "dotted")
    with pytest.warns(UserWarning, match="north has classes that are unknown in the labeled domain central: dotted"):
        assert train(root, tmp_path / "run", *ONE_EPOCH) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "unlabeled 24 pseudo-labels" in shown and ", n = 18)" in shown
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count(", n = 18)") == 2
    assert "audited" not in (tmp_path / "run" / "diagnosis.json").read_text()


def as_an_earlier_version_wrote_it(run: Path) -> None:
    """Without checksums, and the model among the run's other files."""
    for place in (run, run / "model"):
        (place / "manifest.json").unlink()
    for path in (run / "run.json", run / "model" / "model.json"):
        about = json.loads(path.read_text())
        about["format"] = about["format"].replace("-2", "-1")
        path.write_text(json.dumps({key: value for key, value in about.items() if key not in ("seal", "id")}))
    for path in (run / "model").iterdir():
        path.rename(run / path.name)


@pytest.mark.parametrize("layout", ["run", "run/model", "earlier version"])
@pytest.mark.parametrize("command", ["predict", "evaluate", "label-next"])
def test_a_run_and_its_model_folder_are_used_alike(
    command: str, layout: str, trained: Path, data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    if layout == "earlier version":
        as_an_earlier_version_wrote_it(run)
    given = run / "model" if layout == "run/model" else run
    more = {"predict": [str(data / "south")], "evaluate": ["--domain", "north"], "label-next": ["--k", "1"]}
    outs = [tmp_path / "1", tmp_path / "2"]
    for folder, out in zip((trained, given), outs, strict=True):
        assert cli.run([command, str(folder), *more[command], "--out", str(out), "--device", "cpu"]) == 0
    if command == "evaluate":
        first, second = (json.loads(out.read_text()) for out in outs)
        assert second["trained_on_without_labels"]
        assert first["per_class"] == second["per_class"]
    else:
        assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_model_folder_travels_alone(trained: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "model", tmp_path / "mine")
    answers = [load_model(folder, "cpu").predict_proba(data / "south") for folder in (trained, tmp_path / "mine")]
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("command", ["predict", "evaluate", "label-next"])
def test_model_json_is_read_once(
    command: str, trained: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, read = [], manifest.read_regular

    def counted(path: Path, most: int) -> bytes:
        opened.append(path)
        return read(path, most)

    monkeypatch.setattr(manifest, "read_regular", counted)
    more = {"predict": [str(data / "south")], "evaluate": ["--domain", "north"], "label-next": ["--k", "1"]}
    out = str(tmp_path / "out")
    assert cli.run([command, str(trained), *more[command], "--out", out, "--device", "cpu"]) == 0
    assert opened.count(trained / "model" / "model.json") == 1
    assert opened.count(trained / "model" / "model.safetensors") == 1


def test_the_images_to_label_are_shown_on_a_page(trained: Path, tmp_path: Path) -> None:
    command = ["label-next", str(trained), "--k", "3", "--out", str(tmp_path / "extra.csv"), "--device", "cpu"]
    assert cli.run(command) == 0
    page = (tmp_path / "extra.html").read_text(encoding="utf-8")
    rows = (tmp_path / "extra.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert page.count('<img src="data:image/png;base64,') == len(rows) == 6
    for row in rows:
        assert row.split(",")[0] in page.replace("<wbr>", ""), row
    (tmp_path / "extra.csv").unlink()
    with pytest.raises(UserError, match=r"extra\.html exists"):
        cli.run(command)
