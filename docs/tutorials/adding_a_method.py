# %% [markdown]
# A method is a class with settings and losses. The loop does the rest: batches, optimizer steps, checkpoints,
# resuming, records, evaluation. This one is entropy minimisation (Grandvalet and Bengio, 2004): cross-entropy on
# labeled images, plus the weighted entropy of the predictions on unlabeled ones.

# %%
from __future__ import annotations

from dataclasses import dataclass

from proud.config import NotNegative
from proud.methods.base import Method, MethodConfig
from proud.randomness import Draw


@dataclass(frozen=True)
class EntropyConfig(MethodConfig):
    entropy_weight: NotNegative = 0.1
    """weight of the entropy of predictions on unlabeled images"""


class Entropy(Method):
    Config = EntropyConfig

    def draws(self, stage):
        other = Draw((self.config.batch_size, self.views.uniforms), sample_dim=0)
        return self.labeled_draws(noisemix=False) | {"other": other}

    def losses(self, stage, rows, draws):
        supervised = self.labeled_loss(rows["labeled"], draws, noisemix=False)
        if stage.name == "pretrain":
            return {"loss": supervised}
        x = self.views.training(self.context.unlabeled.take(rows["unlabeled"]), draws["other"])
        with self.context.autocast():
            _, logits = self.net(x)
        p = logits.float().softmax(1)
        entropy = -(p * p.clamp_min(1e-12).log()).sum(1).mean()
        return {"loss": supervised + self.numbers.entropy_weight * entropy, "entropy": entropy}


# %% [markdown]
# `draws` names the random numbers of a step; the loop generates them from the seed, so that a resumed run is
# bit-identical. `losses` is the forward pass; it never waits for the device, so on a GPU the whole step is one CUDA
# graph. All rules: [adding a method](../internals/adding.md).
#
# One line registers it, and its setting becomes a parameter like any other:

# %%
from proud.methods import METHODS

METHODS["entropy"] = (f"{__name__}:Entropy", {})

from proud import ProUD
from proud.data.embedded import load_embedded

sites = {name: (images[::2], labels[::2]) for name, (images, labels) in load_embedded().items()}
quick = {"size": 16, "batch_size": 32, "lr": 0.03, "seed": 1, "device": "cpu", "verbose": False}
for weight in (0.0, 0.3):
    model = ProUD("entropy", entropy_weight=weight, epochs=5, pretrain_epochs=25, **quick)
    model.fit(sites["pen"], unlabeled={name: sites[name][0] for name in ("texture", "print")}, test=sites["street"])
    last = model.history_[-1]["losses"]
    accuracy = 100 * model.result_["test_accuracy"]
    print(f"weight {weight}: entropy {last['entropy']:.2f}, accuracy on street {accuracy:.1f} %")

# %% [markdown]
# The entropy falls with its weight, which shows that the loss works. Whether the accuracy rises is another question,
# and one run does not answer it: [comparing methods](comparing-methods.md).
