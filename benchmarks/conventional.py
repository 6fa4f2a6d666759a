"""Training speed of a conventional loop and of ours: same network, batch, optimizer and image files, in one run.

Usage: python benchmarks/conventional.py --out benchmarks/results/conventional.json

The conventional loop trains as users of Dassl, DomainBed or USB do, written with care: image files are decoded by
Pillow and augmented by torchvision in DataLoader workers (persistent, pinned memory, one per core and loader), steps
are eager, and each step reads its loss with `.item()`. On CUDA it has cuDNN's benchmark mode, autocast to bf16, fused
SGD, the channels-last layout and copies that do not block. Its data streams run on from epoch to epoch, and are full
when timing begins. Its strong augmentation is RandAugment without Cutout, which makes it a little cheaper than ours.

Ours decodes every image once (`decode_s`), and then trains with the fast loop on CUDA, with the plain one on a CPU. An
epoch has the main stage's steps, without evaluation. The images are made up, in a benchmark's counts and sizes.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import speed
import torch
from PIL import Image
from table_text import this_command
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, RandomSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

from proud.config import RunConfig
from proud.data.decode import stored_side
from proud.data.types import Task
from proud.files import check_writable, write_json
from proud.machine import choose_device, choose_threads, cores, environment
from proud.methods.base import Method
from proud.randomness import Randomness
from proud.training.fast import FastEpochs
from proud.training.loop import plain_epoch
from proud.training.run import load

SIDES = {"pacs": (227, "jpg"), "digits-dg": (32, "png")}
METHODS = {"erm": 1, "fixmatch": 3}  # images through the network per image of a batch
WARM_UP_EPOCHS = 2


def make_images(folder: Path, data: str, most: int) -> None:
    """FOLDER/site-T/class/*, site-0 being labeled: smooth patterns with some noise, about as hard to decode as PACS."""
    shape, (side, kind) = speed.SHAPES[data], SIDES[data]
    random = np.random.default_rng(0)
    for site, count in enumerate((shape["labeled"], *shape["unlabeled"])):
        for number in range(min(count, most)):
            place = folder / f"site-{site}" / str(number % shape["classes"]) / f"{number}.{kind}"
            place.parent.mkdir(parents=True, exist_ok=True)
            coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((side, side), 3)
            noisy = np.asarray(coarse) + random.normal(0, 6, (side, side, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(place, quality=90)


# ---- the conventional loop


class WeakAndStrong:
    """Two views of an image."""

    def __init__(self, weak: Callable[..., Tensor], strong: Callable[..., Tensor]) -> None:
        self.weak, self.strong = weak, strong

    def __call__(self, image: Image.Image) -> tuple[Tensor, Tensor]:
        return self.weak(image), self.strong(image)


def augmentations(method: Method) -> dict[str, Callable[..., Any]]:
    """By pool: those of our method, as torchvision has them."""
    size, flip = method.context.size, method.config.flip
    side = stored_side(size)
    moved = [transforms.Resize((side, side)), transforms.RandomCrop(size), transforms.RandomHorizontalFlip(flip * 0.5)]
    colours = [transforms.ColorJitter(0.4, 0.4, 0.4, 0.1), transforms.RandomGrayscale(0.2)]
    tensor = [transforms.ToTensor(), transforms.Normalize(method.context.mean, method.context.std)]
    weak = transforms.Compose([*moved, *tensor])
    strong = transforms.Compose([*moved, transforms.RandAugment(), *tensor])
    return {
        "labeled": transforms.Compose([*moved, *colours, *tensor]),
        "unlabeled": WeakAndStrong(weak, strong),
    }


class Conventional:
    """Loaders, network, optimizer and steps."""

    def __init__(self, name: str, method: Method, folder: Path, workers: int) -> None:
        self.name, self.config, self.workers = name, method.config, workers
        self.device, self.steps = method.context.device, method.stage_list()[-1].steps
        self.cuda = self.device.type == "cuda"
        self.net: nn.Module = copy.deepcopy(method.net).train()
        self.optimizer = torch.optim.SGD(
            self.net.parameters(),
            lr=self.config.lr,
            momentum=self.config.momentum,
            weight_decay=self.config.weight_decay,
            fused=self.cuda,
        )
        augment = augmentations(method)
        sites = sorted(path for path in folder.iterdir() if path.is_dir())
        self.labeled: Dataset = ImageFolder(str(sites[0]), augment["labeled"])
        self.unlabeled: Dataset = ConcatDataset([ImageFolder(str(site), augment["unlabeled"]) for site in sites[1:]])
        if name == "fixmatch":
            average = get_ema_multi_avg_fn(self.config.ema_decay)
            self.average = AveragedModel(self.net, multi_avg_fn=average)

    def loader(self, images: Any, steps: int) -> DataLoader:
        batch, several = self.config.batch_size, self.workers > 0
        return DataLoader(
            images,
            batch,
            sampler=RandomSampler(images, num_samples=steps * batch),  # pass after pass
            num_workers=self.workers,
            pin_memory=self.cuda,
            persistent_workers=several,
        )

    def epoch_seconds(self, epochs: int) -> list[float]:
        torch.backends.cudnn.benchmark = True
        steps = (WARM_UP_EPOCHS + epochs) * self.steps
        pools = [self.labeled, self.unlabeled][: 1 + (self.name == "fixmatch")]
        batches = zip(*(self.loader(pool, steps) for pool in pools), strict=True)
        step = self.fixmatch_step if self.name == "fixmatch" else self.erm_step
        ends = []
        for number, batch in enumerate(batches, 1):
            step(*batch)
            if number % self.steps == 0:
                ends.append(time.perf_counter())  # `.item()` has waited for the device
        return [end - begin for begin, end in pairwise(ends)][WARM_UP_EPOCHS - 1 :]

    def erm_step(self, batch: list[Tensor]) -> None:
        images, labels = (values.to(self.device, non_blocking=True) for values in batch)
        with self.autocast():
            logits = self.logits(images)
        self.learn(nn.functional.cross_entropy(logits.float(), labels))

    def fixmatch_step(self, labeled: list[Tensor], unlabeled: list[Any]) -> None:
        images, labels = (values.to(self.device, non_blocking=True) for values in labeled)
        weak, strong = (views.to(self.device, non_blocking=True) for views in unlabeled[0])
        with self.autocast():
            logits = self.logits(torch.cat([images, weak, strong])).float()
        on_labeled, on_weak, on_strong = logits.chunk(3)
        sure, pseudo = on_weak.detach().softmax(-1).max(-1)
        wrong = nn.functional.cross_entropy(on_strong, pseudo, reduction="none")
        unlabeled_loss = (wrong * (sure >= self.config.confidence)).mean()
        self.learn(nn.functional.cross_entropy(on_labeled, labels) + self.config.unlabeled_weight * unlabeled_loss)
        self.average.update_parameters(self.net)

    def logits(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)[1]
        return logits

    def learn(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.loss = loss.item()

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.cuda)


# ---- ours


def our_epoch_seconds(method: Method, epochs: int) -> list[float]:
    """Of all epochs: the first compiles."""
    cuda = method.context.device.type == "cuda"
    run_epoch = FastEpochs(method) if cuda else plain_epoch
    random = Randomness(2022, method.context.device)

    def one(epoch: int) -> None:
        stage, rows = speed.begin(method, -1, epoch, random)
        run_epoch(method, stage, rows, random, lambda step: None)

    return [speed.seconds_of(lambda epoch=epoch: one(epoch), method.context.device) for epoch in range(1 + epochs)]


def read_task(folder: Path, size: int, name: str) -> tuple[Task, float]:
    begin = time.perf_counter()
    run = RunConfig(str(folder), labeled="site-0", test="none", size=size, method=name, val=0.0)
    return load(run)[0], time.perf_counter() - begin


# ---- both


def measure(
    data: str, name: str, folder: Path, device: torch.device, epochs: int, workers: int, **settings: Any
) -> dict[str, Any]:
    shape = speed.SHAPES[data]
    task, decode_s = read_task(folder, shape["size"], name)
    precision = "bf16" if device.type == "cuda" else "fp32"

    def built() -> Method:
        return speed.build(shape, data, name, task, device, precision, device.type == "cuda", **settings)

    method = built()
    steps, batch = method.stage_list()[-1].steps, method.config.batch_size
    images = steps * batch * METHODS[name]

    def rate(seconds: list[float]) -> dict[str, Any]:
        return {"epochs_s": seconds, "epoch_s": median(seconds), "images_per_s": images / median(seconds)}

    conventional = rate(Conventional(name, method, folder, workers).epoch_seconds(epochs))
    first, *others = our_epoch_seconds(built(), epochs)
    ours = rate(others) | {"first_epoch_s": first, "decode_s": decode_s}
    return {
        "data": data,
        "method": name,
        "precision": precision,
        "batch_size": batch,
        "steps": steps,
        "images_per_step": images // steps,
        "conventional": conventional,
        "ours": ours,
        "ratio": conventional["epoch_s"] / ours["epoch_s"],
    }


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=SIDES, nargs="+", default=list(SIDES))
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--epochs", type=int, default=5, help="timed epochs of each loop")
    parser.add_argument("--images", type=int, default=10**6, help="at most so many images per site (for a trial)")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=cores(), help="of each DataLoader (default: one per core)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: half the cores)")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    check_writable(given.out)
    device, threads = choose_device(given.device), choose_threads(given.threads)
    about = environment(device) | {"threads": threads, "workers": given.workers, "cores": cores(), "seed": 2022}
    rows = []
    for data in given.data:
        with tempfile.TemporaryDirectory() as home:
            make_images(Path(home), data, given.images)
            for name in given.methods:
                row = measure(data, name, Path(home), device, given.epochs, given.workers, batch_size=given.batch_size)
                rows.append(row)
                write_json(given.out, about | {"command": this_command(), "rows": rows})
                print(f"{data} {name}: {row['ratio']:.1f} times as fast as the conventional loop")


if __name__ == "__main__":
    main()
