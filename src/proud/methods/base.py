"""What every method has: settings, stages, draws and losses. The loop feeds, counts, records and saves.

A method implements `Config`, `draws` and `losses`; `stages`, `begin_epoch`, `step` and `network` where it differs from
the usual; and `describe`, if records and reports have something to show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from proud.config import BatchSize, Count, Decay, NotNegative, Positive, Share, WholeNumber
from proud.lazy import torch
from proud.methods.description import Description
from proud.methods.numbers import on_device
from proud.methods.views import Views
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor, nn

    from proud.methods.context import Context
    from proud.methods.ema import WeightAverage
    from proud.nets.models import Net
    from proud.randomness import Randomness

LossFunction = Callable[["Stage", dict[str, "Tensor"], Draws], dict[str, "Tensor"]]


@dataclass(frozen=True)
class MethodConfig:
    """Settings that all methods share. The defaults suit photographs; presets change them per data set."""

    epochs: Count = 80
    """passes over the unlabeled images, after pretraining"""
    pretrain_epochs: WholeNumber = 30
    """epochs on the labeled domain alone, before the main phase"""
    batch_size: BatchSize = 128
    """images per step from each side (labeled, unlabeled)"""
    lr: Positive = 0.001
    """learning rate of SGD"""
    weight_decay: NotNegative = 0.01
    """weight decay of SGD"""
    momentum: Decay = 0.9
    """momentum of SGD"""
    schedule: Literal["constant", "cosine"] = "constant"
    """learning rate over the epochs of a stage"""
    flip: bool = True
    """random horizontal flips (wrong for digits and text)"""
    turn: bool = False
    """random quarter turns, for images without an up: cells, satellite scenes"""
    hue: Share = 0.1
    """largest random change of hue, as a share of the colour circle; 0 keeps hues"""
    gray: Share = 0.2
    """share of the training images that lose their colours"""
    least_steps: Count = 1
    """least number of steps of an epoch: with few images, one pass is only a few steps"""
    even_sites: bool = False
    """draw as many images from each unlabeled site, whatever its size, instead of each image equally often"""


class Sizes(NamedTuple):
    """Numbers of training images: all that stages depend on besides the settings."""

    labeled: int
    unlabeled: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A part of training: how long, and from which populations (name -> number of rows) its batches are drawn.

    A stage that draws from `labeled` alone sees no other images, so a bench runs it once for all test domains. It is
    also shared by runs that differ in nothing that the stage depends on: `settings` (None: all but `epochs`) and, with
    `sees_ahead`, the lengths of the stages after it.
    """

    name: str
    epochs: int
    steps: int
    pools: dict[str, int]
    settings: frozenset[str] | None = None
    sees_ahead: bool = False


class Parts:
    """An object whose networks, buffers and optimizers are part of a checkpoint, nested ones included.

    What must survive a stop is an attribute that is an nn.Module, an optimizer, another `Parts`, or a list of these.
    Plain tensors are working memory.
    """

    def parts(self) -> Iterator[tuple[str, nn.Module | torch.optim.Optimizer]]:
        for name, value in vars(self).items():
            several = isinstance(value, list)
            for place, item in enumerate(value if several else [value]):
                here = f"{name}.{place}" if several else name
                if isinstance(item, torch.nn.Module | torch.optim.Optimizer):
                    yield here, item
                elif isinstance(item, Parts):
                    for inner, part in item.parts():
                        yield f"{here}.{inner}", part


class Method(Parts):
    """A training algorithm."""

    Config: ClassVar[type[MethodConfig]] = MethodConfig

    uses_known_labels: ClassVar[bool] = False
    """whether labels that the user adds to unlabeled images (`proud train --labels`) have an effect"""

    distributed: ClassVar[bool] = False
    """whether several processes may train one network: whatever mixes images uses `context.group`"""

    starts_from_model: ClassVar[bool] = True
    """whether training may start from a finished model (`proud train --from`), which all its networks then equal"""

    def __init__(self, config: Any, context: Context) -> None:
        self.config = config
        self.context = context
        self.numbers = on_device(
            config, context.device
        )  # for what is compiled: a value of `config` is a constant there
        self.views = Views(context, config, self.numbers)
        self.net: Net = context.build_net("net")
        self.optimizer = self.sgd(self.net)
        self.average: WeightAverage | None = None
        self.log_prior: Tensor | None = None
        """[K], added to logits in every cross-entropy"""

    # ---- the contract

    @classmethod
    def stages(cls, config: Any, sizes: Sizes) -> list[Stage]:
        return cls.pretrain_and_main(config, sizes, main=("labeled", "unlabeled"))

    def draws(self, stage: Stage) -> dict[str, Draw]:
        """The random tensors that one step of this stage needs, for the whole batch."""
        raise NotImplementedError

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        """The losses of one step as scalar tensors, `loss` being the total. Float settings are read from `numbers`."""
        raise NotImplementedError

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        """Before the first step of an epoch (`epoch` counts from 0 within the stage)."""
        self.set_learning_rate(stage, epoch)
        self.net.train()
        if self.average is not None:
            self.average.begin_epoch(stage, epoch)

    def step(self, stage: Stage, rows: dict[str, Tensor], draws: Draws, losses: LossFunction) -> dict[str, Tensor]:
        """One optimizer step. `losses` is the method's own, possibly compiled or synchronised over processes."""
        found = losses(stage, rows, draws)
        self.optimizer.zero_grad()
        found["loss"].backward()
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.net, stage)
        return {name: value.detach() for name, value in found.items()}

    def rows(self, stage: Stage, random: Randomness) -> dict[str, Tensor]:
        """The row numbers of all batches of an epoch, by pool. [steps, batch size] each."""
        batch, sites = self.config.batch_size, self.context.unlabeled.sizes
        return {
            name: random.even_rows(name, sites, stage.steps, batch)
            if name == "unlabeled" and self.config.even_sites
            else random.rows(name, population, stage.steps, batch)
            for name, population in stage.pools.items()
        }

    def network(self) -> Net:
        """The network that is evaluated and saved."""
        return self.net if self.average is None else self.average.net

    def describe(self, random: Randomness | None = None) -> Description:
        """What records and reports show. With `random`, pseudo-labels are computed anew with the current network."""
        return Description()

    # ---- stages

    @classmethod
    def pretrain_and_main(
        cls,
        config: MethodConfig,
        sizes: Sizes,
        main: tuple[str, ...],
        pretraining: Iterable[str] | None = None,
        sees_ahead: bool = False,
    ) -> list[Stage]:
        """The usual pair: pretraining on the labeled domain, then a main phase over the unlabeled images.

        `main`: the pools from which the main phase draws. `pretraining`: the method's own settings that pretraining
        depends on; None: all. Without unlabeled images, an epoch of the main phase is one pass over the labeled ones.
        """
        pools = {"labeled": sizes.labeled, "unlabeled": sum(sizes.unlabeled)}
        own = None if pretraining is None else frozenset({each.name for each in fields(MethodConfig)} | {*pretraining})
        steps = {name: steps_for(size or sizes.labeled, config) for name, size in pools.items()}
        labeled = {"labeled": pools["labeled"]}
        return [
            Stage("pretrain", config.pretrain_epochs, steps["labeled"], labeled, own, sees_ahead),
            Stage("main", config.epochs, steps["unlabeled"], {name: pools[name] for name in main}),
        ]

    @classmethod
    def needs_unlabeled(cls) -> bool:
        """Whether a stage draws from other images than the labeled ones."""
        return any(set(stage.pools) != {"labeled"} for stage in cls.stages(cls.Config(), Sizes(1, (1,))))

    def stage_list(self) -> list[Stage]:
        return self.stages(self.config, self.context.sizes)

    # ---- saving

    def modules(self) -> dict[str, nn.Module]:
        return {name: part for name, part in self.parts() if isinstance(part, torch.nn.Module)}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {name: part for name, part in self.parts() if isinstance(part, torch.optim.Optimizer)}

    def state_dict(self) -> dict[str, Tensor]:
        state = {
            f"{name}.{key}": value
            for name, module in self.modules().items()
            for key, value in module.state_dict().items()
        }
        for name, optimizer in self.optimizers().items():
            for index, values in optimizer.state_dict()["state"].items():
                state |= {f"{name}.{index}.{key}": value for key, value in values.items() if value is not None}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, module in self.modules().items():
            prefix = f"{name}."
            module.load_state_dict({key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)})
        for name, optimizer in self.optimizers().items():
            saved = optimizer.state_dict()
            saved["state"] = {}
            for key in state:
                if key.startswith(f"{name}."):
                    index, _, entry = key.removeprefix(f"{name}.").partition(".")
                    saved["state"].setdefault(int(index), {})[entry] = state[key]
            optimizer.load_state_dict(saved)
            for parameter, values in optimizer.state.items():  # fused steps want the parameters' memory layout
                for entry, value in values.items():
                    if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                        values[entry] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)

    # ---- tools

    def sgd(self, *modules: nn.Module, lr: float | None = None) -> torch.optim.Optimizer:
        config, device = self.config, self.context.device
        rate, cuda = config.lr if lr is None else lr, device.type == "cuda"
        parameters = [parameter for module in modules for parameter in module.parameters()]
        optimizer = torch.optim.SGD(
            parameters,
            lr=torch.tensor(rate, device=device) if cuda else rate,  # a captured graph sees changes of a tensor
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=cuda,
        )
        if config.momentum:
            # there from the start: torch's fused step fails where some weights join later than others
            for parameter in parameters:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer

    def set_learning_rate(self, stage: Stage, epoch: int) -> None:
        factor = 1.0
        if self.config.schedule == "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * epoch / stage.epochs))
        for optimizer in self.optimizers().values():
            for group in optimizer.param_groups:
                base = group.setdefault("base_lr", float(group["lr"]))
                if isinstance(group["lr"], torch.Tensor):
                    group["lr"].fill_(base * factor)
                else:
                    group["lr"] = base * factor

    def labeled_draws(self, noisemix: bool) -> dict[str, Draw]:
        """Draws for `labeled_loss`."""
        wanted = {"augment": Draw((self.config.batch_size, self.views.uniforms), sample_dim=0)}
        return wanted | self.views.noise_draws(1) if noisemix else wanted

    def labeled_loss(self, rows: Tensor, draws: Draws, noisemix: bool) -> Tensor:
        """Cross-entropy on augmented labeled images and, with `noisemix`, on their NoiseMix copies."""
        with torch.no_grad():
            x = self.views.training(self.context.labeled.take(rows), draws["augment"])
            labels = self.context.labels[rows]
            if noisemix:
                x = torch.cat([x, self.views.noise_copies(x, draws)])
                labels = labels.repeat(2)
        with self.context.autocast():
            _, logits = self.net(x)
        return torch.nn.functional.cross_entropy(self.adjusted(logits.float()), labels)

    def adjusted(self, logits: Tensor) -> Tensor:
        """Logits as a cross-entropy sees them: with the log prior of the classes that are learned from, if set."""
        return logits if self.log_prior is None else logits + self.log_prior


def steps_for(population: int, config: MethodConfig) -> int:
    """Of an epoch: one pass, or more where that would be fewer than the least number."""
    return max(config.least_steps, math.ceil(population / config.batch_size))


def buffers(**tensors: Tensor) -> nn.Module:
    """Tensors that are part of a checkpoint."""
    module = torch.nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor)
    return module


def any_length(values: Tensor) -> Tensor:
    """Let compiled code serve other numbers of rows too: runs on domains of other sizes share it."""
    if values.is_cuda:
        torch._dynamo.maybe_mark_dynamic(values, 0)
    return values
