"""What every method has: a config, networks and optimizers of its own, and the few hooks that the loop calls."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from proud.lazy import ops, torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from proud.methods.context import Context
    from proud.nets.models import Net
    from proud.ops import PseudoLabels
    from proud.randomness import Draw, Draws, Randomness


VIEW_UNIFORMS = 9  # random numbers per augmented image


@dataclass(frozen=True)
class MethodConfig:
    """Settings that all methods share. The defaults suit photographs; presets change them per data set."""

    epochs: int = 80
    """epochs of the main phase; an epoch passes once over the unlabeled images"""
    pretrain_epochs: int = 30
    """epochs over the labeled domain alone, before the main phase"""
    batch_size: int = 128
    """images drawn per step from each side (labeled, unlabeled)"""
    lr: float = 0.001
    """learning rate of SGD"""
    weight_decay: float = 0.01
    """weight decay of SGD"""
    momentum: float = 0.9
    """momentum of SGD"""
    schedule: Literal["constant", "cosine"] = "constant"
    """learning rate over the epochs of a stage"""
    flip: bool = True
    """flip images left to right at random (wrong for digits and text)"""


@dataclass(frozen=True)
class Stage:
    """A part of training: how long, and over which populations (name -> number of rows) its batches are drawn.

    A stage that draws from `labeled` alone sees no other images: a bench runs it once for all test domains.
    """

    name: str
    epochs: int
    steps: int
    pools: dict[str, int]


class Method:
    """A training algorithm. The loop feeds, counts, records and saves; everything else happens here."""

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    ALSO_COMPILED: ClassVar[tuple[str, ...]] = ()
    """names of methods of pure tensor work outside `losses`, which the fast loop compiles too"""

    USES_KNOWN: ClassVar[bool] = False
    """whether labels that the user adds to unlabeled images (`proud train --labels`) have an effect"""

    LOOKS_AHEAD: ClassVar[bool] = False
    """whether a stage also depends on the lengths of those after it"""

    MAIN_ONLY: ClassVar[tuple[str, ...]] = ()
    """settings without effect on a first stage over the labeled domain alone"""

    DISTRIBUTED: ClassVar[bool] = False
    """whether several processes may train one network: everything that mixes images asks `context.group`"""

    own_statistics: bool = False
    """pseudo-labels and prototypes come from features under a domain's own batch statistics"""
    centred: bool = False
    """a domain's mean is taken off unit features before angles are measured"""

    def __init__(self, config: Any, context: Context) -> None:
        self.config = config
        self.context = context
        self.net: Net = context.build_net("net")
        self.optimizer = self.sgd(self.net)

    # ---- the hooks

    def stages(self) -> list[Stage]:
        raise NotImplementedError

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        """Before the first step of an epoch (`epoch` counts from 0 within the stage)."""
        self.set_learning_rate(stage, epoch)
        self.net.train()

    def draws(self, stage: Stage) -> dict[str, Draw]:
        """The random tensors that one step of this stage needs, for the whole batch."""
        raise NotImplementedError

    def step(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        """One optimizer step; returns its losses as tensors, `loss` being the total."""
        losses = self.losses(stage, rows, draws)
        self.optimizer.zero_grad()
        losses["loss"].backward()
        self.optimizer.step()
        return {name: value.detach() for name, value in losses.items()}

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        raise NotImplementedError

    def network(self) -> Net:
        """The network that is evaluated and saved."""
        return self.net

    def pseudo_labels(self) -> dict[str, PseudoLabels]:
        """Current pseudo-labels per unlabeled domain, where the method makes them."""
        return {}

    def signals(self, found: PseudoLabels) -> dict[str, Tensor]:
        """Scalars that the method adds to a domain's record of an epoch."""
        return {}

    def plausible_mixes(self) -> Tensor:
        """How often classes may well come up in the unlabeled domains: as in the labeled one, at least. [M,K]."""
        return ops.class_mix(self.context.labels, self.context.classes)[None]

    def cautions(self) -> list[str]:
        """What a user of such data should know before hours are spent."""
        return []

    def merged_prototypes(self) -> Tensor | None:
        """Prototypes over all domains [K,d], where the method has such."""
        return None

    def certainty(self, uncertainty: Tensor) -> Tensor | None:
        """The ratio at which images of such uncertainty are mixed, where the method mixes by it. [N] -> [N]."""
        return None

    def snapshot(self, random: Randomness) -> dict[str, Tensor]:
        """What a report shows of this moment: named tensors, a few megabytes at most."""
        return {}

    def prototypes(self, random: Randomness) -> dict[str, Tensor]:
        """Prototypes of the trained network, where the method has such; called once, after the last epoch.

        `merged` [K,d], and `site/NAME` [K,d] with `present/NAME` [K] of each domain; `center` and those of each domain
        [d] are taken off unit features before angles to them are measured; `tau` [1] is the uncertainty's temperature.
        """
        return {}

    # ---- saving

    def modules(self) -> dict[str, nn.Module]:
        return {"net": self.net}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"optimizer": self.optimizer}

    def state_dict(self) -> dict[str, Tensor]:
        state = {
            f"{name}.{key}": value
            for name, module in self.modules().items()
            for key, value in module.state_dict().items()
        }
        if same := self.modules().keys() & self.optimizers().keys():
            raise ValueError(f"modules() and optimizers() are saved by name, and share {', '.join(sorted(same))}")
        for name, optimizer in self.optimizers().items():
            for index, fields in optimizer.state_dict()["state"].items():
                state |= {f"{name}.{index}.{field}": value for field, value in fields.items() if value is not None}
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
                    index, _, field = key.removeprefix(f"{name}.").partition(".")
                    saved["state"].setdefault(int(index), {})[field] = state[key]
            optimizer.load_state_dict(saved)
            for parameter, fields in optimizer.state.items():  # fused steps want the parameters' memory layout
                for field, value in fields.items():
                    if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                        fields[field] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)

    # ---- tools for the methods

    def steps_for(self, population: int) -> int:
        return max(1, math.ceil(population / self.config.batch_size))

    def sgd(self, *modules: nn.Module, lr_factor: float = 1.0) -> torch.optim.Optimizer:
        parameters = [parameter for module in modules for parameter in module.parameters()]
        cuda = self.context.device.type == "cuda"
        # on CUDA the learning rate is a tensor, so that a captured graph sees its changes
        lr = (
            torch.tensor(self.config.lr * lr_factor, device=self.context.device) if cuda else self.config.lr * lr_factor
        )
        config = self.config
        optimizer = torch.optim.SGD(
            parameters, lr=lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=cuda
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

    def autocast(self) -> AbstractContextManager:
        context = self.context
        return torch.autocast(
            context.device.type, dtype=torch.bfloat16, enabled=context.precision == "bf16", cache_enabled=False
        )

    def view(self, images: Tensor, uniform: Tensor) -> Tensor:
        """A simple augmentation (translation, flip, colour jitter, grayscale) of stored uint8 images, normalised."""
        context = self.context
        draw = ops.augment_draw(uniform, images.shape[-1] - context.size, flip_p=0.5 if self.config.flip else 0.0)
        return ops.augment(images, draw, context.size, context.mean, context.std)

    view_uniforms = VIEW_UNIFORMS
    """random numbers per image that `training_view` needs"""

    def training_view(self, images: Tensor, uniform: Tensor) -> Tensor:
        """The augmentation of images that are learned from."""
        return self.view(images, uniform)

    def labeled_draws(self, noisemix: bool) -> dict[str, Draw]:
        """Draws for `labeled_loss`."""
        from proud.randomness import Draw

        wanted = {"augment": Draw((self.config.batch_size, self.view_uniforms), sample_dim=0)}
        return wanted | self.noise_draws(1) if noisemix else wanted

    def labeled_loss(self, rows: Tensor, draws: Draws, noisemix: bool) -> Tensor:
        """Cross-entropy on augmented labeled images and, with `noisemix`, on their NoiseMix copies."""
        with torch.no_grad():
            x = self.training_view(self.context.labeled.take(rows), draws["augment"])
            labels = self.context.labels[rows]
            if noisemix:
                x = torch.cat([x, self.noise_copy(x, draws)])
                labels = labels.repeat(2)
        with self.autocast():
            _, logits = self.net(x)
        return torch.nn.functional.cross_entropy(self.learned(logits.float()), labels)

    def learned(self, logits: Tensor) -> Tensor:
        """Logits as a cross-entropy sees them."""
        return logits

    def noise_copy(self, x: Tensor, draws: Draws) -> Tensor:
        """NoiseMix copies of normalised images, with the draws that `noise_draws` declares."""
        context = self.context
        draw = ops.noise_mix_draw(
            draws["noise_sample"].flatten(1), draws["noise_layer"], draws["noise_weights"], draws["noise"].flatten(1, 2)
        )
        return ops.noise_mix(x, draw, context.mean, context.std, coarse=context.precision == "bf16")

    def noise_draws(self, groups: int) -> dict[str, Draw]:
        """Draws for NoiseMix (P = 3, kernels up to 15) on `groups` × batch_size images."""
        from proud.randomness import Draw

        batch, size = self.config.batch_size, self.context.size
        return {
            "noise_sample": Draw((2, groups, batch), sample_dim=2),
            "noise_layer": Draw((3, 3)),
            "noise_weights": Draw((3, 3, 3, 15, 15)),
            "noise": Draw((3, groups, batch, 3, size, size), "normal", sample_dim=2),
        }

    def chunks(self, population: int) -> Iterator[Tensor]:
        """Row numbers of a population in pieces that fit a forward pass."""
        yield from torch.arange(population, device=self.context.device).split(self.context.chunk_size)
