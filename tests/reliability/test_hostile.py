"""Input that was made to do harm: it is refused in one line, or used without harm."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from PIL.GifImagePlugin import GifImageFile

from proud.bench.plan import Job
from proud.config import RunConfig
from proud.data.csv_table import scan_csv
from proud.data.decode import BadImage, PixelFormat, decode
from proud.data.folder import scan_folder
from proud.data.shapes import native_side
from proud.data.walk import Walk
from proud.errors import UserError
from proud.files import check_output, write_json, write_table
from proud.methods import method_config
from proud.model import load
from proud.model.answers import AnswerOptions
from proud.model.load import load_model
from proud.model.predict import Model, find_images, predict_files, write_predictions
from proud.nets.models import build_empty, build_net, model_spec
from proud.text import plain_cell, printable, safe_cell
from proud.training.run_folder import default_folder
from proud.typed import read_record
from toy import restamp, write_folders

PIXELS = PixelFormat(16)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    spec = model_spec("digits", 2, 16)
    Model(build_net(spec), spec, ("cat", "=1+1"), {}, torch.device("cpu")).save(tmp_path / "model")
    return tmp_path / "model"


# ---- outputs


@pytest.mark.parametrize("linked", [False, True], ids=["itself", "through a link"])
def test_a_pipe_or_a_device_is_not_replaced_by_a_file(linked: bool, tmp_path: Path) -> None:
    pipe = out = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        out = tmp_path / "link"
        out.symlink_to(pipe)
    for write in (lambda: write_json(out, {}), lambda: check_output(out, overwrite=True)):
        with pytest.raises(UserError, match="a device or a pipe, not a file"):
            write()
    assert pipe.is_fifo() and out.is_symlink() == linked and len(list(tmp_path.iterdir())) == 1 + linked


# ---- files that claim to be models


class Harm:
    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("harm-was-done"),))


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", b"\0" * 10_000_000)
    return file.getvalue()


def _tensors(entry: dict, data: bytes = b"\0" * 8) -> bytes:
    header = json.dumps({"x": entry}).encode()
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Harm()),
        _zip(),
        b"",
        b"\x80\x02",
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 99_000_000) + b"{" * 1000,
        _tensors({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}),
        _tensors({"dtype": "F32", "shape": [2], "data_offsets": [0, 2**60]}),
        _tensors({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}),
    ],
)
def test_other_files_than_safetensors_are_refused_and_not_executed(content: bytes, model: Path) -> None:
    (model / "model.safetensors").write_bytes(content)
    restamp(model)
    with pytest.raises(UserError, match="does not hold a valid model"):
        load_model(model, "cpu")
    assert not Path("harm-was-done").exists()


@pytest.mark.parametrize("name", ["model.pt", "model.pkl", "model.safetensors"])
def test_a_single_file_is_no_model(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Harm()))
    with pytest.raises(UserError, match="is a file: a model is a folder"):
        load_model(tmp_path / name, "cpu")
    assert not Path("harm-was-done").exists()


@pytest.mark.parametrize("change", ["nan", "type", "shape", "more", "fewer"])
def test_weights_must_be_those_of_the_network(change: str, model: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / "model.safetensors")
    name = next(iter(tensors))
    if change == "nan":
        tensors[name].view(-1)[0] = torch.nan
    elif change == "type":
        tensors[name] = tensors[name].double()
    elif change == "shape":
        tensors[name] = tensors[name][None]
    elif change == "more":
        tensors["payload"] = torch.zeros(3)
    else:
        del tensors[name]
    save_file(tensors, model / "model.safetensors")
    restamp(model)
    with pytest.raises(UserError, match="does not hold a valid model"):
        load_model(model, "cpu")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "hf-hub:stranger/model"),
        ("name", "local-dir:/tmp"),
        ("name", "../../x"),
        ("size", 4096),
        ("size", True),
        ("classes", 10**12),
        ("classes", float("inf")),
        ("std", [0, 0, 0]),
        ("mean", [1]),
        ("name", "vit_giant_patch14_clip_224"),  # for images of 14 pixels and more: these have 16
        ("name", "vit_large_patch32_224"),
        ("name", "resnet18"),
    ],
)
def test_an_invalid_network_is_refused_before_it_takes_memory(
    key: str, value: object, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = json.loads((model / "model.json").read_text())
    about["spec"][key] = value
    (model / "model.json").write_text(json.dumps(about))
    built_on: list[str] = []

    def build(*arguments: Any, **more: Any) -> Any:
        net = build_empty(*arguments, **more)
        built_on.extend(weight.device.type for weight in net.parameters())
        return net

    monkeypatch.setattr(load, "build_empty", build)
    restamp(model)
    with pytest.raises(UserError, match="does not hold a valid model"):
        load_model(model, "cpu")
    assert set(built_on) <= {"meta"}


def test_a_pipe_in_place_of_a_model_is_not_waited_for(model: Path) -> None:
    for name in ("model.safetensors", "model.json"):
        (model / name).unlink()
        os.mkfifo(model / name)
        with pytest.raises(UserError):
            load_model(model, "cpu")


# ---- folders of images


def test_pipes_sockets_devices_and_empty_files_in_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_folders(tmp_path / "data", {"a": 0, "b": 1}, per_class=1)
    os.mkfifo(root / "a" / "plain" / "pipe.png")
    (root / "a" / "plain" / "empty.png").touch()
    monkeypatch.chdir(root / "a" / "plain")
    socket.socket(socket.AF_UNIX).bind("socket.png")
    reasons = {}
    for name in ("pipe.png", "socket.png", "empty.png"):
        with pytest.raises(BadImage) as caught:
            decode(root / "a" / "plain" / name, PIXELS)
        reasons[name] = str(caught.value)
    assert "not a regular file" in reasons["pipe.png"] and "0 bytes" in reasons["empty.png"]
    with pytest.raises(BadImage, match="not a regular file"):
        decode(Path("/dev/zero"), PIXELS)
    catalog = scan_folder(root)
    assert native_side(catalog, catalog.domains["a"]) == 16


def test_a_file_that_claims_to_be_huge(tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(BadImage, match="exceed the limit"):
        decode(tmp_path / "huge.png", PIXELS)


def test_links_that_loop_or_multiply(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"a": 0}, per_class=1)
    (root / "a" / "self.png").symlink_to(root / "a" / "self.png")
    (root / "a" / "round").symlink_to(root / "a")
    for level in range(30):  # 2^30 ways to the last folder: who takes them all never ends
        (root / "chain" / str(level)).mkdir(parents=True)
        for side in "lr":
            (root / "chain" / str(level) / side).symlink_to(root / "chain" / str(level + 1))
    catalog = scan_folder(root)
    assert "a/round" in catalog.ignored_links
    (root / "table.csv").write_text("path,domain,label\na/self.png,a,x\n")
    with pytest.raises(UserError, match=r"no file a/self\.png"):
        scan_csv(root / "table.csv")


def test_folders_nested_too_deeply(tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    for _ in range(150):
        os.mkdir("d")  # noqa: PTH102
        os.chdir("d")
    os.chdir(here)
    with pytest.raises(UserError, match="nested too deeply"):
        list(Walk(tmp_path).images(tmp_path))


@pytest.mark.parametrize("place", ["a\x00b.png", "x" * 5000, "loop/x.png", "../up.png", "/etc/passwd"])
def test_paths_in_tables(place: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "table.csv").write_text(f"path,domain,label\n{place},a,x\n")
    with pytest.raises(UserError, match="1 problem"):
        scan_csv(tmp_path / "table.csv")


def test_file_names_that_are_no_text(model: Path, tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"a": 0}, per_class=1)
    source = min(root.rglob("*.png"))
    content = source.read_bytes()
    for name in (b"caf\xe9.png", b"two\nlines.png", b"=cmd.png", b"-x.png", b"\x1b[31m.png"):
        Path(os.fsdecode(os.fsencode(source.parent) + b"/" + name)).write_bytes(content)
    loaded = load_model(model, "cpu")
    rows, _ = predict_files(loaded, find_images(root), AnswerOptions())
    write_predictions(tmp_path / "out.csv", rows, loaded.classes)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(rows) == 9
    assert any("caf\\udce9.png" in row["path"] for row in written)
    assert all(not row["label"].startswith("=") for row in written)
    (root / os.fsdecode(b"dom\xe9")).mkdir()
    (root / os.fsdecode(b"dom\xe9") / "x.png").write_bytes(content)
    with pytest.raises(UserError, match="not valid UTF-8"):
        scan_folder(root)
    write_json(tmp_path / "x.json", {"name": "caf\udce9"})
    assert read_record(tmp_path / "x.json", dict[str, str]) == {"name": "caf\udce9"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_and_folders(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"a": 0}, per_class=1)
    path = min(root.rglob("*.png"))
    path.chmod(0)
    with pytest.raises(BadImage, match="Permission denied"):
        decode(path, PIXELS)
    path.parent.chmod(0)
    with pytest.raises(UserError, match="Cannot read the folder"):
        scan_folder(root)
    path.parent.chmod(0o755)


@pytest.mark.parametrize("name", ["..", "-x", "a/b", "x" * 300, "a\nb", "ü" * 200])
def test_odd_domain_names_stay_in_their_folder(name: str) -> None:
    run = RunConfig(data="d", labeled=name, test="t")
    for made in (default_folder(run), str(Path("runs") / Job(run, method_config("erm")).name)):
        assert Path(made).parent == Path("runs") and len(os.fsencode(Path(made).name)) < 255
        assert os.path.normpath(made) == made


# ---- bombs


def _saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("kind", "side", "options"),
    [("PNG", 10_001, {}), ("PNG", 13_400, {}), ("TIFF", 13_400, {"compression": "group4"}), ("GIF", 13_400, {})],
)
def test_decompression_bombs(kind: str, side: int, options: dict[str, object]) -> None:
    content = _saved(Image.new("1", (side, side)), kind, **options)
    assert len(content) < 1_000_000
    with pytest.raises(BadImage, match="the limit of 100 million"):
        decode(content, PIXELS)


def test_only_the_first_frame_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [Image.new("P", (64, 64), number) for number in range(100)]
    content = _saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    sought: list[int] = []
    seek = GifImageFile._seek

    def counting(self: GifImageFile, frame: int, *more: Any) -> None:
        sought.append(frame)
        seek(self, frame, *more)

    monkeypatch.setattr(GifImageFile, "_seek", counting)
    decode(content, PIXELS)
    assert set(sought) <= {0, 1}


# ---- what is shown and written


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@x",
        "\t=1",
        "\r=1",
        "\n=1",
        " =1",
        "\u3000=1",
        "\u200b=1",
        "＝1+1",
        "\ufeff=1",
        "=cmd|' /C calc'!A0",
    ],
)
def test_no_cell_is_a_formula(text: str) -> None:
    assert safe_cell(text).startswith("'")
    assert plain_cell(safe_cell(text)) == text


@pytest.mark.parametrize("text", ["x;=HYPERLINK(1)", "x; =1", "x\n=1", "x|@y", "x;'=1", "'=1", "x;\n=1", "x;\t'\r=1"])
def test_no_part_of_a_cell_is_a_formula_where_semicolons_separate(text: str, tmp_path: Path) -> None:
    write_table(tmp_path / "x.csv", ["path", "label"], [["a.png", text]])
    parts = re.split(r"[;|\t\r\n,]", (tmp_path / "x.csv").read_text(encoding="utf-8"))
    assert not [part for part in parts if part.strip(' "').startswith(tuple("=+-@"))]
    assert plain_cell(safe_cell(text)) == text
    assert safe_cell(text) != text


@pytest.mark.parametrize("value", ["cat", "a-b", "", "1", -1, -0.5, "it's", "<b>"])
def test_other_cells_are_unchanged(value: object) -> None:
    assert safe_cell(value) == value


def test_messages_cannot_command_the_terminal() -> None:
    assert printable("a\x1b]0;x\x07b\u202ec\udcff\n") == "a\\x1b]0;x\\x07b\\u202ec\\udcff\n"
