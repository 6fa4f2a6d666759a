"""What the stages of every method cost, measured with a copy of the method."""

from __future__ import annotations

import pytest
import torch

from proud.data.types import Task, TrainingData
from proud.methods import METHODS, method_class, method_config
from proud.methods.context import make_context
from proud.methods.workload import count_work, few_images, kind_of, time_work
from proud.nets.models import model_spec
from toy import SIDE, toy_settings, toy_task


@pytest.fixture(scope="module")
def task() -> Task:
    return toy_task(per_class=12)


@pytest.mark.parametrize("name", [name for name, (_, fixed) in METHODS.items() if not fixed])
def test_every_stage_is_timed_and_the_method_is_not_touched(name: str, task: Task) -> None:
    spec = model_spec("digits", 4, SIDE)
    context = make_context(task.training, spec, torch.device("cpu"), weights="none", seed=1, precision="fp32")
    method = method_class(name)(toy_settings(name), context)
    before = {key: value.clone() for key, value in method.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found = time_work(method, task.training)
    assert found.keys() == {kind_of(stage) for stage in method.stage_list()}
    assert all(each.step > 0 and each.passed >= 0 and each.forward > 0 for each in found.values())
    assert all(torch.equal(value, method.state_dict()[key]) for key, value in before.items())
    assert torch.equal(torch.get_rng_state(), state)


def test_full_passes_count_each_image_as_often_as_it_is_seen() -> None:
    """Three views of all three domains and, for a second opinion, one of the two unlabeled ones."""
    passed = {
        name: count_work(method_class(name), method_config(name))["main"].passed for name in ("proud", "proud-plus")
    }
    assert passed == {"proud": 3, "proud-plus": pytest.approx(3 + 2 / 3)}


def test_a_few_images_of_every_domain_and_class(task: Task) -> None:
    few = few_images(task.training, 6)
    assert sorted(few.labeled.labels.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [len(domain) for domain in few.unlabeled] == [6, 6]
    everything = few_images(task.training, 1000)
    assert len(everything.labeled) == len(task.training.labeled)
    alone = TrainingData(task.training.classes, task.training.labeled, ())
    assert few_images(alone, 6).unlabeled == ()
