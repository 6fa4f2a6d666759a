"""Added labels, saved prototypes and label-next with centred features, consensus and batch norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from test_known import with_known

import oracle
from proud import ops
from proud.config import Options
from proud.data.types import Task
from proud.methods import method_class
from proud.methods.context import make_context
from proud.model.label_next import judge
from proud.model.load import load_model
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training.run import train
from proud.training.snapshot import snapshot
from toy import CLASSES, as_domain, task_from, toy_images, toy_run, toy_settings, toy_task


def pseudo_labeled(name: str, task: Task, model: str = "digits") -> tuple[Any, Randomness]:
    """A method right after pseudo-labeling."""
    spec = model_spec(model, len(CLASSES), task.size)
    context = make_context(task.training, spec, torch.device("cpu"), weights="none", seed=3, precision="fp32")
    method = method_class(name)(toy_settings(name), context)
    random = Randomness(3, context.device)
    random.begin_epoch("main", 0)
    method.begin_epoch(method.stage_list()[1], 0, random)
    return method, random


@pytest.mark.parametrize("name", ["proud", "proud-plus"])
def test_an_added_label_changes_the_prototypes_of_its_own_domain_only(name: str) -> None:
    task = toy_task(per_class=3)
    before, random = pseudo_labeled(name, task)
    first = before.found["hidden 1"].labels
    wanted = {row: int(first[row] + 1 + row % 3) % 4 for row in (1, 5, 6)}
    stated = with_known(task, wanted)
    after, random = pseudo_labeled(name, stated)
    known = stated.training.unlabeled[0].known
    by_hand = ops.dapp(after.seen(1, random).chunks, after.tau, known=known)
    found = after.found["hidden 1"]
    assert torch.allclose(found.prototypes, by_hand.prototypes, atol=1e-5)
    assert not torch.allclose(found.prototypes, before.found["hidden 1"].prototypes, atol=1e-3)
    for row, label in wanted.items():  # no later step changes it
        assert (found.labels[row], found.uncertainty[row]) == (label, 0)
        assert (after.labels[row], after.uncertainty[row]) == (label, 0)
    other, same = (method.found["hidden 2"] for method in (before, after))
    assert torch.equal(other.prototypes, same.prototypes)
    assert torch.equal(other.labels, same.labels)
    assert all(map(torch.equal, before.labeled, after.labeled))
    assert not torch.equal(before.merged, after.merged)


def network_task(size: int) -> Task:
    """Three domains whose images fit a network of this size."""
    hidden = [as_domain(f"hidden {t}", *toy_images(t, 6)) for t in (1, 2)]
    return task_from(toy_images(0, 12), hidden, toy_images(3, 3), size=size, val=0.2, seed=1)


@pytest.fixture(scope="module", params=["proud", "proud-plus"])
def normed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Task]:
    """A run of a network with batch norm."""
    folder, task = tmp_path_factory.mktemp("normed"), network_task(32)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu")
    run = toy_run(request.param, task, model="test_resnet", weights="none", val=0.2)
    train(run, toy_settings(request.param, epochs=2, pretrain_epochs=2), options, data=task)
    return folder, task


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_saved_prototypes_match_the_features_of_predictions(normed: tuple[Path, Task]) -> None:
    """In training, features depend on the batch statistics of their domain; a single image has none."""
    folder, task = normed
    model = load_model(folder, "cpu")
    assert model.prototypes is not None
    saved = {key: value.double().numpy() for key, value in model.prototypes.items()}
    features = unit(model.outputs(task.training.labeled.images)[0].double().numpy())
    centred = model.config["method"] == "proud-plus"
    own = unit(features - features.mean(0)) if centred else features
    for label in range(4):
        mean = own[task.training.labeled.labels.numpy() == label].mean(0)
        assert saved["labeled"][label] == pytest.approx(mean, abs=1e-5)
    centers = [features.mean(0)]
    for domain in task.training.unlabeled:
        site = unit(model.outputs(domain.images)[0].double().numpy())
        centers.append(site.mean(0))
        assert saved[f"center/{domain.name}"] == pytest.approx(centers[-1] if centred else 0 * centers[-1], abs=1e-5)
    assert saved["center"] == pytest.approx(np.mean(centers, 0) if centred else 0 * centers[0], abs=1e-5)
    there = np.stack([saved["labeled_present"], *(saved[f"present/hidden {t}"] for t in (1, 2))])[..., None]
    every = np.stack([saved["labeled"], *(saved[f"site/hidden {t}"] for t in (1, 2))])
    assert saved["merged"] == pytest.approx((every * there).sum(0) / there.sum(0).clip(1), abs=1e-5)


@pytest.mark.parametrize("name", ["proud", "proud-plus", "mean-teacher"])
def test_snapshots_show_features_like_those_of_the_prototypes(name: str) -> None:
    task = network_task(32)
    method, random = pseudo_labeled(name, task, "test_resnet")
    shown = load(snapshot("first", method, method.describe(), task, random))
    truth = task.evaluation.audits["hidden 2"].labels
    assert torch.equal(shown["unlabeled/hidden 2/truth"], truth)  # for every method: maps are coloured by true classes
    net, spec = method.network(), method.context.spec
    for key, domain in (("unlabeled/hidden 1", task.training.unlabeled[0]), ("test", task.evaluation.test)):
        net.train(name.startswith("proud") and key != "test")
        for module in net.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.momentum = 0.0  # keep the running statistics
        with torch.no_grad():
            wanted = net(ops.evaluation_view(domain.images, spec.size, spec.mean, spec.std))[0]
        torch.testing.assert_close(shown[f"{key}/features"].float(), wanted, rtol=1e-2, atol=1e-2)


def test_label_next_judges_like_training(normed: tuple[Path, Task]) -> None:
    folder, task = normed
    model = load_model(folder, "cpu")
    assert model.prototypes is not None
    found = {key: value.double().numpy() for key, value in model.prototypes.items()}
    domain = task.training.unlabeled[1]
    features, guess, doubt = judge(model, domain)
    logits = model.outputs(domain.images)[1].double()
    aligned = unit(unit(features.double().numpy()) - found["center/hidden 2"])
    distances, present = oracle.cosine_distance(aligned, found["site/hidden 2"]), found["present/hidden 2"] > 0
    share = model.config["method_config"].get("classifier", 0.0)
    labels, uncertainty, _ = oracle.consensus(
        distances[None], logits.softmax(1).numpy(), found["tau"].item(), present, share
    )
    assert doubt.numpy() == pytest.approx(uncertainty, abs=1e-3)
    assert np.mean(guess.numpy() == labels) > 0.95  # ties aside
