"""EID (Lin et al., 2024, "Semi-supervised domain generalization with evolving intermediate domain").

After pretraining come rounds of two phases. Each unlabeled domain has a model of its own that adapts to it (maximum
classifier discrepancy, MCD) and pseudo-labels it. Two networks then teach each other on all domains, each learning the
pseudo-labels that the other finds easy; what both agree on joins the next round's adaptation as an intermediate domain.

The released code picks those clean samples by the unlabeled domains' true labels. Here only the networks' own
agreement and confidence decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from proud.config import BetaParameter, Count, Share
from proud.lazy import LazyModule, ops, torch
from proud.methods.base import Method, MethodConfig, Sizes, Stage, any_length, buffers, steps_for
from proud.methods.coteaching import clean_first, information_maximization, remember_count, smallest
from proud.methods.description import Description
from proud.methods.mcd import Adapter
from proud.methods.mixstyle import LAYERS, MixStyle
from proud.methods.views import SIMPLE_UNIFORMS
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import LossFunction
    from proud.methods.context import Context
    from proud.nets import batch_norm
    from proud.nets.models import Net
    from proud.randomness import Randomness
else:
    batch_norm = LazyModule("proud.nets.batch_norm")


@dataclass(frozen=True)
class EIDConfig(MethodConfig):
    rounds: Count = 3
    """rounds of adaptation and co-teaching, among which the epochs of the main phase are divided"""
    adapt_share: Share = 2 / 3
    """share of a round's epochs that goes to adaptation"""
    feature_steps: Count = 4
    """updates of the features against the classifiers' discrepancy in each adaptation step"""
    intermediate_mixup: BetaParameter = 1.0
    """adaptation mixes labeled and clean images; the larger, the more evenly (parameter of a beta distribution)"""
    clean_share: Share = 0.4
    """share of the agreed pseudo-labels that joins the next round's adaptation"""
    forget_rate: Share = 0.5
    """share of the pseudo-labels in a batch that co-teaching leaves out, once fully ramped"""
    mixstyle_p: Share = 0.5
    """how often MixStyle mixes, at each of its layers"""
    mixstyle_alpha: BetaParameter = 0.1
    """MixStyle mixes the styles of two images; the larger, the more evenly (parameter of a beta distribution)"""


class Phase(NamedTuple):
    """What a stage does: adapt to an unlabeled domain, or teach (domain is None). Rounds count from 1; 0 pretrains."""

    round: int
    domain: int | None


def phase_of(stage: Stage) -> Phase:
    """From the stage's name: pretrain, adapt-ROUND-DOMAIN or teach-ROUND."""
    if stage.name == "pretrain":
        return Phase(0, None)
    _, number, *domain = stage.name.split("-")
    return Phase(int(number), int(domain[0]) - 1 if domain else None)


class EID(Method):
    Config = EIDConfig
    starts_from_model = False
    config: EIDConfig

    def __init__(self, config: EIDConfig, context: Context) -> None:
        super().__init__(config, context)
        self.second = context.build_net("second")
        self.styles = [MixStyle(net) for net in (self.net, self.second)]
        self.optimizer = self.sgd(self.net, self.second)
        self.adapters = [Adapter(self, f"adapter{t}") for t in range(len(context.unlabeled_names))]
        rows, device = len(context.unlabeled), context.device
        self.remembered = torch.zeros((), dtype=torch.int64, device=device)
        self.labels = any_length(torch.zeros(rows, dtype=torch.int64, device=device))
        # the adapters' pseudo-labels, and the intermediate domains: of domain t, the first clean_count[t] rows of its
        # part of clean_rows, with the labels that both networks gave them
        self.kept: Any = buffers(
            labels=self.labels,
            uncertainty=torch.zeros(rows, device=device),
            clean_rows=torch.zeros(rows, dtype=torch.int64, device=device),
            clean_labels=torch.zeros(rows, dtype=torch.int64, device=device),
            clean_count=torch.zeros(len(self.adapters), dtype=torch.int64, device=device),
            labeled_yet=torch.zeros((), dtype=torch.int64, device=device),
        )

    @classmethod
    def stages(cls, config: EIDConfig, sizes: Sizes) -> list[Stage]:
        """Pretraining, then rounds with as many epochs over the unlabeled images as other methods' main phases have.

        Its checkpoints have a model for each of the domains to come, and a place for each image: `sees_ahead`.
        """
        usual = cls.pretrain_and_main(config, sizes, main=("labeled", "unlabeled"), sees_ahead=True)
        stages, (_, main) = usual[:1], usual
        for number in range(1, config.rounds + 1):
            epochs = config.epochs * number // config.rounds - config.epochs * (number - 1) // config.rounds
            adapting = max(1, round(config.adapt_share * epochs))
            for t, size in enumerate(sizes.unlabeled):
                steps = steps_for(size, config)
                stages.append(Stage(f"adapt-{number}-{t + 1}", adapting, steps, {"domain": size}))
            stages.append(Stage(f"teach-{number}", max(1, epochs - adapting), main.steps, main.pools))
        return stages

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        self.set_learning_rate(stage, epoch)
        for module in self.modules().values():
            module.train()
        number, domain = phase_of(stage)
        if epoch == 0 and number:
            with torch.no_grad():
                if domain is None:
                    self.pseudo_label()
                elif number == 1:
                    self.start_from_pretrained(domain)
                else:
                    self.select_clean(domain)
        self.kept.labeled_yet.fill_(number > 1 or (number == 1 and domain is None))
        self.remembered.fill_(remember_count(self.config.batch_size, self.config.forget_rate, epoch, stage.epochs))

    def set_learning_rate(self, stage: Stage, epoch: int) -> None:
        """Every round divides the learning rate by the square of its number."""
        super().set_learning_rate(stage, epoch)
        factor = 1 / max(1, phase_of(stage).round) ** 2
        for optimizer in self.optimizers().values():
            for group in optimizer.param_groups:
                group["lr"] *= factor

    # ---- between the phases: the start, pseudo-labels, and the clean ones among them

    def start_from_pretrained(self, t: int) -> None:
        """Every network gets the pretrained features, and the adapter both pretrained classifiers."""
        adapter = self.adapters[t]
        adapter.net.load_state_dict(self.net.state_dict())
        adapter.second.load_state_dict(self.second.head.state_dict())
        self.second.backbone.load_state_dict(self.net.backbone.state_dict())

    def pseudo_label(self) -> None:
        """Every adapter labels its domain."""
        for t, adapter in enumerate(self.adapters):
            rows = self.context.unlabeled.rows_of(t)
            probs = self.logits_of(adapter.net, t).softmax(1)
            self.labels[rows] = probs.argmax(1)
            self.kept.uncertainty[rows] = torch.special.entr(probs).sum(1)

    def select_clean(self, t: int) -> None:
        rows = self.context.unlabeled.rows_of(t)
        order, labels, count = clean_first(
            self.logits_of(self.net, t), self.logits_of(self.second, t), self.config.clean_share
        )
        self.kept.clean_rows[rows] = rows.start + order
        self.kept.clean_labels[rows] = labels[order]
        self.kept.clean_count[t] = count

    def logits_of(self, net: Net, t: int) -> Tensor:
        """Of all images of an unlabeled domain, in evaluation view and mode."""
        context, start, found = self.context, self.context.unlabeled.rows_of(t).start, []
        every = torch.arange(context.unlabeled.sizes[t], device=context.device)
        with batch_norm.evaluating(net), context.autocast():
            for rows in every.split(context.chunk_size):
                images = context.unlabeled.take(start + rows)
                found.append(net(self.views.evaluation(images))[1].float())
        return torch.cat(found)

    # ---- the steps

    def draws(self, stage: Stage) -> dict[str, Draw]:
        config, batch, phase = self.config, self.config.batch_size, phase_of(stage)
        if not phase.round:
            return self.labeled_draws(noisemix=False)
        augment = Draw((2, batch, SIMPLE_UNIFORMS), sample_dim=1)
        if phase.domain is not None:
            return {
                "augment": augment,
                "source": Draw((batch,), sample_dim=0),
                "ratio": Draw((1,), "beta", parameter=config.intermediate_mixup),
                "partner": Draw((batch,), "permutation"),
            }
        wanted = {"augment": augment, "style_applied": Draw((2, LAYERS))}
        for number in range(2):
            wanted[f"style_ratio{number}"] = Draw((LAYERS, 2 * batch), "beta", parameter=config.mixstyle_alpha)
            wanted[f"style_partner{number}"] = Draw((LAYERS, 2 * batch))
        return wanted

    def step(self, stage: Stage, rows: dict[str, Tensor], draws: Draws, losses: LossFunction) -> dict[str, Tensor]:
        domain = phase_of(stage).domain
        if domain is None:
            return super().step(stage, rows, draws, losses)
        return self.adapt(domain, rows["domain"], draws)

    def adapt(self, t: int, rows: Tensor, draws: Draws) -> dict[str, Tensor]:
        """One step of MCD from the intermediate domain to the unlabeled one."""
        with torch.no_grad():
            images, labels = self.intermediate(t, draws["source"])
            target = self.context.unlabeled.take(self.context.unlabeled.rows_of(t).start + rows)
            x = self.views.simple(images, draws["augment"][0])
            x = ops.mixup(x, draws["partner"], draws["ratio"])
            x_target = self.views.simple(target, draws["augment"][1])
        partner_labels = labels[draws["partner"]]

        def source_loss(logits: Tensor) -> Tensor:
            return ops.mixup_cross_entropy(logits, labels, partner_labels, draws["ratio"])

        return self.adapters[t].step(x, source_loss, x_target, self.config.feature_steps)

    def intermediate(self, t: int, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Images and labels drawn from the labeled domain and the clean samples of domain t, one population."""
        context, kept, rows = self.context, self.kept, self.context.unlabeled.rows_of(t)
        labeled = len(context.labeled)
        total = labeled + kept.clean_count[t : t + 1]
        index = (uniform * total).long().minimum(total - 1)
        clean = index >= labeled
        known = index.clamp_max(labeled - 1)
        place = rows.start + (index - labeled).clamp(0, context.unlabeled.sizes[t] - 1)
        clean_images = context.unlabeled.take(kept.clean_rows[place])
        images = torch.where(clean[:, None, None, None], clean_images, context.labeled.take(known))
        return images, torch.where(clean, kept.clean_labels[place], context.labels[known])

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        """Co-teaching: true labels, the pseudo-labels that the other network finds easy, and InfoMax."""
        if not phase_of(stage).round:
            return self.pretraining_losses(rows["labeled"], draws)
        context, batch = self.context, self.config.batch_size
        with torch.no_grad():
            images = torch.cat([context.labeled.take(rows["labeled"]), context.unlabeled.take(rows["unlabeled"])])
            x = self.views.simple(images, draws["augment"].flatten(0, 1))
        labels = torch.cat([context.labels[rows["labeled"]], self.labels[rows["unlabeled"]]])
        logits = [self.styled_logits(number, x, draws) for number in range(2)]
        each = [torch.nn.functional.cross_entropy(found, labels, reduction="none") for found in logits]
        easy = [smallest(found[batch:].detach(), self.remembered) for found in each]
        true = sum(found[:batch].mean() for found in each)
        pseudo = sum(
            torch.where(chosen, found[batch:], 0).sum() / self.remembered.clamp_min(1)
            for found, chosen in zip(each, reversed(easy), strict=True)
        )
        infomax = sum(information_maximization(found[batch:]) for found in logits)
        return {"loss": true + pseudo + infomax, "true": true, "pseudo": pseudo, "infomax": infomax}  # type: ignore[dict-item]

    def pretraining_losses(self, rows: Tensor, draws: Draws) -> dict[str, Tensor]:
        """Source-only training, with a second classifier on detached features: MCD needs two that differ."""
        with torch.no_grad():
            x = self.views.simple(self.context.labeled.take(rows), draws["augment"])
        labels = self.context.labels[rows]
        with self.context.autocast():
            features, first = self.net(x)
            second = self.second.head(features.detach())
        ce = torch.nn.functional.cross_entropy(first.float(), labels)
        watching = torch.nn.functional.cross_entropy(second.float(), labels)
        return {"loss": ce + watching, "first": ce, "second": watching}

    def styled_logits(self, number: int, x: Tensor, draws: Draws) -> Tensor:
        """Of network 0 or 1, with MixStyle inside."""
        mixing = self.styles[number]
        applied = draws["style_applied"][number] < self.numbers.mixstyle_p
        mixing.draw = (draws[f"style_ratio{number}"], draws[f"style_partner{number}"].argsort(dim=1), applied)
        with self.context.autocast():
            _, logits = (self.net, self.second)[number](x)
        mixing.draw = None
        return logits.float()

    def describe(self, random: Randomness | None = None) -> Description:
        if not self.kept.labeled_yet:
            return Description()
        nothing = torch.zeros(self.context.classes, self.net.num_features, device=self.context.device)
        found = {}
        for t, name in enumerate(self.context.unlabeled_names):
            rows = self.context.unlabeled.rows_of(t)
            labels, uncertainty = self.labels[rows], self.kept.uncertainty[rows]
            found[name] = ops.PseudoLabels(labels, uncertainty, prototypes=nothing, present=nothing[:, 0] > 0)
        return Description(found)
