"""The page's requests: views, reasons, pictures and labels; clients name images by number only."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from proud.data.csv_table import read_labels
from proud.model.atlas import Atlas
from proud.web.labels import LabelTable
from proud.web.views import ORDERS, Views
from web.local import UNSAFE, page_client


def rows(client: TestClient, **asked: object) -> np.ndarray:
    answer = client.get("/api/view", params={name: str(value) for name, value in asked.items()})
    assert answer.status_code == 200, answer.text
    return np.frombuffer(answer.content, "<i4")


def label(client: TestClient, images: list[int], given: object) -> dict:
    answer = client.post("/api/labels", json={"images": images, "label": given})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_session_describes_sites_and_progress(client: TestClient, atlas: Atlas) -> None:
    about = client.get("/api/session").json()
    assert about["classes"] == list(atlas.classes)
    assert UNSAFE in about["classes"]
    assert [(site["name"], site["images"]) for site in about["sites"]] == [("north", 48), ("south", 48)]
    assert all(site["verdict"] and site["text"] for site in about["sites"])
    assert (about["labeled"], about["target"], about["undo"]) == ([0, 0], [20, 20], 0)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_shows_every_image_once(client: TestClient, order: str) -> None:
    assert sorted(rows(client, order=order)) == list(range(96))


def test_orders_put_what_matters_first(client: TestClient, atlas: Atlas) -> None:
    columns = atlas.columns
    doubt = columns["doubt"][rows(client, order="uncertain")]
    assert (np.diff(doubt) <= 0).all()
    disagrees = (columns["guess"] != columns["prototype"])[rows(client, order="disagreeing")]
    assert (np.diff(disagrees.astype(int)) <= 0).all()
    distance = columns["distance"][rows(client, order="typical")]
    assert (np.diff(distance) >= 0).all()
    first = columns["suggested"][rows(client, order="suggested")][:40]
    assert (first >= 0).all(), "20 of each site"
    assert list(rows(client, order="random")) != list(range(96))


def test_filters(client: TestClient, atlas: Atlas) -> None:
    columns = atlas.columns
    assert set(rows(client, site=1)) == set(range(48, 96))
    for guess in range(4):
        found = rows(client, **{"class": guess})
        assert set(found) == set(np.flatnonzero(columns["guess"][:96] == guess))
    verdict = atlas.sites[0].verdict
    wanted = {number for number, site in enumerate(atlas.sites[:2]) if site.verdict == verdict}
    assert set(columns["site"][rows(client, verdict=verdict)]) == wanted
    assert set(rows(client, shown="abstain")) == set(np.flatnonzero(columns["abstain"][:96]))
    guess = int(columns["guess"][3])
    label(client, [3], guess)
    label(client, [4], (int(columns["guess"][4]) + 1) % 4)
    assert set(rows(client, shown="labeled")) == {3, 4}
    assert set(rows(client, shown="corrected")) == {4}
    assert set(rows(client, shown="open")) == set(range(96)) - {3, 4}


@pytest.mark.parametrize("asked", ["order=x", "shown=x", "site=x", "class=1e3"])
def test_unknown_filters_are_refused(client: TestClient, asked: str) -> None:
    assert client.get(f"/api/view?{asked}").status_code == 400


def test_labels_are_saved_and_undone(client: TestClient, views: Views) -> None:
    found = label(client, [0, 1, 2], 2)
    assert found == {"changed": [[0, 2], [1, 2], [2, 2]], "labeled": [3, 0], "target": [20, 20], "undo": 1}
    assert {row.label for row in read_labels(views.table.path)} == {views.atlas.classes[2]}
    assert label(client, [1], None)["changed"] == [[1, -1]]
    assert client.post("/api/undo", json={}).json()["changed"] == [[1, 2]]
    assert client.post("/api/undo", json={}).json()["labeled"] == [0, 0]
    assert client.post("/api/undo", json={}).json() == {"changed": [], "labeled": [0, 0], "target": [20, 20], "undo": 0}


def test_several_images_as_predicted_are_one_change(client: TestClient, atlas: Atlas) -> None:
    found = label(client, list(range(96)), "guess")
    assert dict(found["changed"]) == dict(enumerate(atlas.columns["guess"][:96].tolist()))
    assert found["undo"] == 1
    assert client.get("/api/images").json()["label"] == atlas.columns["guess"][:96].tolist()


def test_labels_outlive_the_server(client: TestClient, views: Views) -> None:
    label(client, [0, 50], 1)
    again = Views(views.atlas, LabelTable(views.table.path), 20)
    assert np.flatnonzero(again.labels == 1).tolist() == [0, 50]


def test_an_edited_table_is_shown(client: TestClient, views: Views) -> None:
    label(client, [0], 1)
    path = views.table.path
    path.write_text(path.read_text().replace(f",{views.atlas.classes[1]},", f",{views.atlas.classes[3]},", 1))
    assert label(client, [5], 2)["changed"] == [[0, 3], [5, 2]]


def test_copies_change_together(views: Views) -> None:
    contents = list(views.atlas.contents)
    contents[9] = contents[8]
    twice = Views(replace(views.atlas, contents=contents), views.table, 20)
    assert twice.set([8], 1) == [(8, 1), (9, 1)]
    assert twice.why(8)["copies"] == 1


def test_why(client: TestClient, atlas: Atlas) -> None:
    row = 50
    found = client.get(f"/api/image/{row}").json()
    assert found["path"].startswith("south/")
    assert found["guess"] == atlas.columns["guess"][row]
    distances = [near["distance"] for near in found["prototypes"]]
    assert len(distances) == 3
    assert distances == sorted(distances)
    for near in found["prototypes"]:
        assert [atlas.columns["truth"][image] for image in near["images"]] == [near["class"]] * 3
    cosines = [one["cosine"] for one in found["alike"]]
    assert len(cosines) == 6
    assert cosines == sorted(cosines, reverse=True)
    for one in found["alike"]:
        assert atlas.locations[one["image"]].startswith(f"central/{atlas.classes[one['class']]}/")


@pytest.mark.parametrize("path", ["/thumb/{}", "/picture/{}"])
def test_pictures(client: TestClient, atlas: Atlas, path: str) -> None:
    for row in (0, 95, len(atlas.contents) - 1):
        answer = client.get(path.format(row))
        assert answer.headers["content-type"] == "image/png"
        shown, true = (
            np.asarray(Image.open(file).convert("RGB")) for file in (io.BytesIO(answer.content), atlas.sources[row])
        )
        assert (shown == true).all()


@pytest.mark.parametrize(
    "path",
    [
        "/thumb/144",
        "/thumb/-1",
        "/thumb/99999999999999999999",
        "/thumb/../../etc/passwd",
        "/thumb/%2e%2e%2fx",
        "/picture/0/x",
        "/api/image/96",
        "/review.py",
        "/page/../labels.py",
        "/static/x",
        "//etc/passwd",
    ],
)
def test_nothing_else_can_be_read(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404, answer.text


def test_a_replaced_file_is_not_shown(views: Views, tmp_path: Path) -> None:
    """Not even as a link to a picture outside the folders."""
    outside, there = tmp_path / "secret.png", tmp_path / "image.png"
    Image.new("RGB", (20, 20), "red").save(outside)
    shutil.copy(views.atlas.sources[7], there)
    sources = [*views.atlas.sources[:7], there, *views.atlas.sources[8:]]
    client = page_client(Views(replace(views.atlas, sources=sources), views.table, 20), tmp_path)
    assert client.get("/picture/7").status_code == 200
    there.unlink()
    there.symlink_to(outside)
    assert client.get("/picture/7").status_code == 410
    assert client.get("/thumb/7").status_code == 410
    there.unlink()
    assert client.get("/thumb/7").status_code == 410


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"images": []},
        {"images": "0", "label": 1},
        {"images": [96], "label": 1},
        {"images": [-1], "label": 1},
        {"images": [True], "label": 1},
        {"images": [0], "label": 4},
        {"images": [0], "label": "plain"},
        {"images": [0], "label": 1.0},
    ],
)
def test_bad_changes_are_refused(client: TestClient, views: Views, body: object) -> None:
    assert client.post("/api/labels", json=body).status_code == 400
    assert not views.table.path.exists()


def test_uploads_are_refused(client: TestClient, views: Views) -> None:
    assert client.post("/api/labels", files={"file": b"x"}).status_code == 415
    assert client.post("/api/labels", content=b"x", headers={"Content-Type": "text/csv"}).status_code == 415
    plain = {"Content-Type": "application/json"}
    assert client.post("/api/labels", content=b"{", headers=plain).status_code == 400
    assert client.post("/api/labels", content=b"[" * 100_000, headers=plain).status_code == 400
    assert client.post("/api/labels", content=b" " * (3 << 20), headers=plain).status_code == 413
    assert client.put("/api/labels", json={}).status_code == 405
    assert client.post("/thumb/0", json={}).status_code == 405
    assert not views.table.path.exists()


def test_a_full_disk_is_reported(client: TestClient, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proud.files.make_folder", full)
    answer = client.post("/api/labels", json={"images": [0], "label": 1})
    assert answer.status_code == 507
    assert "No space left on device" in answer.json()["error"]
    assert client.get("/api/images").json()["label"][0] == -1
