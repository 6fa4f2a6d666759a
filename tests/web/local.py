"""A run on sites with unsafe names, and clients of a server without a socket."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from proud.cli import main as cli
from proud.web.guard import Guard
from proud.web.review import Review
from proud.web.thumbnails import Thumbnails
from proud.web.views import Views

UNSAFE = "<b onclick=alert(1)>plain&"
FLAGS = "--size 16 --epochs 2 --pretrain-epochs 4 --batch-size 16 --lr 0.02 --threads 1 --device cpu --quiet"
PORT, TOKEN = 8321, "secret"
ADDRESS = f"http://127.0.0.1:{PORT}"


def train(data: Path, out: Path, *more: str) -> int:
    argv = ["train", "--data", str(data), "--labeled", "central", "--test", "none", "--out", str(out)]
    return cli.run([*argv, "--method", "proud-plus", *FLAGS.split(), *more])


def page_client(views: Views, folder: Path) -> TestClient:
    """Logged in as the page is: by a cookie, with the header Origin."""
    review = Review(views, Thumbnails(folder / "thumbnails"), "proud train …", "labels.csv")
    client = TestClient(Guard(review.app(), "127.0.0.1", PORT, TOKEN), base_url=ADDRESS, headers={"Origin": ADDRESS})
    assert client.get("/", params={"token": TOKEN}).status_code == 200
    return client
