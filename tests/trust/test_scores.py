"""Scores in which all classes count alike, against scikit-learn and against simulated draws."""

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from proud.trust import scores as module
from proud.trust.scores import scores


def images(counts, distance, seed=0):
    """Scores of normal noise, with their own class further away. Probabilities [N,K] and labels [N]."""
    random, labels = np.random.default_rng(seed), np.repeat(np.arange(len(counts)), counts)
    values = random.normal(size=(len(labels), len(counts)))
    values[np.arange(len(labels)), labels] += np.asarray(distance)[labels]
    return torch.tensor(values).softmax(1).round(decimals=2), torch.tensor(labels)


def by_sklearn(probs, labels):
    truth, predicted = labels.numpy(), probs.numpy().argmax(1)
    present = np.unique(truth)
    areas = [roc_auc_score(truth == k, probs[:, k].numpy()) for k in present]
    return (
        balanced_accuracy_score(truth, predicted),
        f1_score(truth, predicted, labels=present, average="macro"),
        np.mean(areas),
    )


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("counts", [(30, 30, 30), (60, 3, 20), (40, 0, 9)])
def test_values_as_in_sklearn(counts):
    probs, labels = images(counts, [1, 1, 1])
    found = scores(probs, labels, "abc")
    values = [found.balanced_accuracy.value, found.macro_f1.value, found.auroc.value]
    assert values == pytest.approx(by_sklearn(probs, labels))
    assert found.absent == (() if counts[1] else ("b",))
    for score in (found.balanced_accuracy, found.macro_f1, found.auroc):
        assert 0 <= score.interval.low < score.value < score.interval.high <= 1


def test_one_class_has_no_rest():
    found = scores(*images((5, 0), [9, 9]), "ab")
    assert found.auroc is None and found.macro_f1.value == 1


def test_no_images():
    found = scores(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), "ab")
    assert found.as_json() == {"balanced_accuracy": None, "macro_f1": None, "auroc": None, "absent": ["a", "b"]}


def test_all_right_is_not_certainty():
    found = scores(*images((8, 8), [50, 50]), "ab")
    assert found.macro_f1.value == found.auroc.value == 1
    assert found.macro_f1.interval.low < 0.9 and found.auroc.interval.low < 0.95


def test_pieces_give_an_interval_like_the_whole(monkeypatch):
    probs, labels = images((30, 9, 30), [1, 1, 1])
    whole = scores(probs, labels, "abc")
    assert scores(probs, labels, "abc") == whole  # seeded
    monkeypatch.setattr(module, "AT_ONCE", 70 * 300)
    parts = scores(probs, labels, "abc")
    assert parts.auroc.value == whole.auroc.value
    assert parts.auroc.interval.low == pytest.approx(whole.auroc.interval.low, abs=0.02)


def test_many_values_get_fewer_draws(monkeypatch):
    probs, labels = images((30, 9, 30), [1, 1, 1])
    whole = scores(probs, labels, "abc")
    monkeypatch.setattr(module, "MOST_WORK", 10)
    few = scores(probs, labels, "abc")
    assert few.auroc.value == whole.auroc.value and few.auroc != whole.auroc
    assert few.auroc.interval.low == pytest.approx(whole.auroc.interval.low, abs=0.03)


def test_too_many_images_have_a_value_without_interval(monkeypatch):
    monkeypatch.setattr(module, "MOST_VALUES", 10)
    found = scores(*images((30, 30), [1, 1]), "ab")
    assert found.auroc.interval is None and str(found.macro_f1).endswith(" %")


@pytest.mark.parametrize(("counts", "distance"), [((60, 8, 20), (2, 1, 0.5)), ((60, 8, 20), (3, 3, 3))])
def test_intervals_hold_in_most_draws(counts, distance, monkeypatch):
    """Of a site with a rare class, for a network that is often or seldom right."""
    monkeypatch.setattr(module, "DRAWS", 400)
    truth = scores(*images([500 * count for count in counts], distance), "abc")
    found = [scores(*images(counts, distance, seed), "abc") for seed in range(1, 101)]
    for name in ("balanced_accuracy", "macro_f1", "auroc"):
        intervals = [getattr(each, name).interval for each in found]
        holds = np.mean([each.low <= getattr(truth, name).value <= each.high for each in intervals])
        assert holds > 0.86, name  # 0.95 less four standard errors
