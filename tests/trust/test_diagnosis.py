"""Signals of a site against slow versions, and verdicts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from proud.config import Options
from proud.ops import PseudoLabels
from proud.training.run import train
from proud.trust.diagnosis import LIMITS, diagnose, most_doubtful, recent_signals, site_signals, verdict_of
from proud.trust.site_accuracy import Estimate
from toy import toy_run, toy_settings, toy_task


def pseudo_labels(labels: list[int], uncertainty: list[float], classes: int = 3) -> PseudoLabels:
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.randn(classes, 4, generator=generator)
    present = torch.tensor([k in labels for k in range(classes)])
    agreement = torch.linspace(0, 1, len(labels))
    return PseudoLabels(
        torch.tensor(labels), torch.tensor(uncertainty), prototypes * present[:, None], present, agreement
    )


def test_signals_by_hand() -> None:
    pseudo = pseudo_labels([0, 0, 1, 0], [0.0, 1.0, 0.2, 0.9])
    merged = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    mixes = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
    signals = site_signals(pseudo, mixes, merged, before=torch.tensor([0, 1, 1, 0]))
    assert signals["class_shift"].item() == pytest.approx((0.25 + 0 + 0.25) / 2)
    assert signals["agreement"].item() == pytest.approx(0.5)
    assert signals["stability"].item() == pytest.approx(0.75)
    assert signals["uncertain"].item() == pytest.approx(sum(e > math.log(3) / 2 for e in (0.0, 1.0, 0.2, 0.9)) / 4)
    distances = []
    for k in (0, 1):  # class 2 has no prototype here
        a, b = pseudo.prototypes[k].numpy(), merged[k].numpy()
        distances.append(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert signals["prototype_shift"].item() == pytest.approx(np.mean(distances), rel=1e-5)
    alone = site_signals(pseudo, mixes)
    assert set(alone) == {"class_shift", "agreement", "uncertain"}


def record(**domains: dict[str, float]) -> dict:
    return {"stage": "main", "domains": domains}


GOOD = {"stability": 0.99, "agreement": 0.99, "class_shift": 0.03, "uncertain": 0.02, "uncertainty": 0.05}
BAD = {"stability": 0.5, "agreement": 0.6, "class_shift": 0.4, "uncertain": 0.7, "uncertainty": 1.5}
# a small run whose pseudo-labels were right for 45 % of the images, and which an earlier rule called sound
MISLEADING = {"stability": 0.8, "agreement": 0.92, "class_shift": 0.14, "uncertain": 0.16, "uncertainty": 0.4}


def test_verdicts() -> None:
    images = [{"path": f"{row}.png", "label": "x", "uncertainty": 1.0} for row in range(30)]
    rows = record(north=GOOD | {"accuracy": 0.1}, east=BAD, south=MISLEADING)
    sites = diagnose([rows] * 6, {"east": images, "north": images})
    assert [site.verdict for site in sites] == ["sound", "poor", "cannot tell"]
    sure, bad, _ = (site.estimate for site in sites)
    assert sure is not None and bad is not None and sure.low >= LIMITS.sound and bad.high < LIMITS.poor
    assert sites[0].text.startswith("north: sound, an estimated ") and "look at" not in sites[0].text
    assert (
        f" % (90 % interval {100 * sure.low:.0f}–{100 * sure.high:.0f} %) of the pseudo-labels are right"
        in sites[0].text
    )
    assert sites[1].text.startswith("east: poor, an estimated ")
    assert "look at its 24 most uncertain images (50 % of the pseudo-labels change" in sites[1].text
    assert "class distribution differs from any plausible one by 40 %" in sites[1].text
    assert sites[2].text.startswith("south: cannot tell, an estimated ")
    assert len(sites[1].look_at) == 24
    assert "accuracy" not in sites[0].signals  # a diagnosis uses no true label
    assert json.dumps([site.as_json() for site in sites])


def test_true_labels_do_not_change_the_diagnosis() -> None:
    with_truth, without = (diagnose([record(a=BAD | more)]) for more in ({"accuracy": 0.0}, {}))
    assert with_truth == without


def test_sound_needs_the_lower_end_and_poor_the_upper_end() -> None:
    assert verdict_of(Estimate(0.8, 0.7, 0.9)) == "sound"
    assert verdict_of(Estimate(0.8, 0.69, 0.9)) == "cannot tell"
    assert verdict_of(Estimate(0.4, 0.3, 0.5)) == "cannot tell"
    assert verdict_of(Estimate(0.4, 0.3, 0.49)) == "poor"
    assert verdict_of(None) == "cannot tell"


def test_records_without_sites_or_without_signals() -> None:
    assert diagnose([{"stage": "pretrain"}]) == []
    (site,) = diagnose([record(a={"class_shift": 0.0, "stability": 1.0})])
    assert site.estimate is None and site.verdict == "cannot tell"


def test_means_over_the_last_five() -> None:
    records = [record(a={"class_shift": value}) for value in (9, 9, 0.1, 0.2, 0.3, 0.4, 0.5)]
    assert recent_signals(records, "a")["class_shift"] == pytest.approx(0.3)


def test_most_doubtful_skips_known_labels() -> None:
    pseudo = pseudo_labels([0, 1, 2, 0], [0.3, 0.9, 0.1, 0.5])
    assert most_doubtful(pseudo, count=2).tolist() == [1, 3]
    assert most_doubtful(pseudo, torch.tensor([-1, 1, -1, -1])).tolist() == [3, 0, 2]


def test_a_run_writes_its_diagnosis_and_prototypes(tmp_path: Path) -> None:
    task = toy_task(per_class=6)
    options = Options(out=str(tmp_path), threads=1, quiet=True, device="cpu")
    train(toy_run("proud", task), toy_settings("proud", epochs=3, pretrain_epochs=3), options, data=task)
    sites = json.loads((tmp_path / "diagnosis.json").read_text())
    assert [site["name"] for site in sites] == ["hidden 1", "hidden 2"]
    assert {"stability", "agreement", "class_shift", "prototype_shift", "uncertain"} <= sites[0]["signals"].keys()
    assert len(sites[0]["look_at"]) == 24
    assert sites[0]["estimate"]["low"] <= sites[0]["estimate"]["accuracy"] <= sites[0]["estimate"]["high"]
    saved = load_file(tmp_path / "model" / "prototypes.safetensors")
    sites_of = [saved["labeled"], *(saved[f"site/hidden {t}"] for t in (1, 2))]
    assert torch.allclose(saved["merged"], torch.stack(sites_of).mean(0), atol=1e-6)
    first = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    main = [row["domains"]["hidden 1"] for row in first if "domains" in row]
    assert ["stability" in row for row in main] == [False, True, True]


def test_stability_is_unknown_after_one_epoch() -> None:
    signals = {name: value for name, value in GOOD.items() if name != "stability"}
    (site,) = diagnose([{"domains": {"north": signals}}])
    assert site.estimate is not None and "stability unknown" in site.text


def test_stability_says_nothing_in_a_run_that_started_from_a_model() -> None:
    (site,), (later,) = (diagnose([record(a=GOOD)], started=started) for started in (False, True))
    assert site.verdict == "sound" and later.verdict == "cannot tell"
    assert "stability" in site.signals and "stability" not in later.signals and "stability unknown" in later.text


@pytest.mark.parametrize("class_mix", ["labeled", "even"])
def test_the_class_mix_is_compared_with_plausible_ones(class_mix: str, tmp_path: Path) -> None:
    task = toy_task(per_class=6)
    labeled = task.training.labeled
    kept = torch.cat([(labeled.labels == k).nonzero().flatten()[: 1 + k] for k in range(4)])
    labeled = replace(labeled, images=labeled.images[kept], labels=labeled.labels[kept])
    task = replace(task, training=replace(task.training, labeled=labeled))
    settings = toy_settings("proud-plus", epochs=1, pretrain_epochs=1, class_mix=class_mix)
    options = Options(out=str(tmp_path), threads=1, quiet=True, device="cpu")
    train(toy_run("proud-plus", task), settings, options, data=task)
    rows = [line.split(",") for line in (tmp_path / "pseudo_labels.csv").read_text().splitlines()[1:]]
    named = [row[2] for row in rows if row[0] == "hidden 1"]
    mix = torch.tensor([named.count(name) / len(named) for name in task.training.classes])
    plausible = [torch.tensor([0.1, 0.2, 0.3, 0.4])] + [torch.full((4,), 0.25)] * (class_mix == "even")
    last = json.loads((tmp_path / "records.jsonl").read_text().splitlines()[-1])
    nearest = min((mix - prior).abs().sum().item() / 2 for prior in plausible)
    assert last["domains"]["hidden 1"]["class_shift"] == pytest.approx(nearest, abs=1e-6)
