# %% [markdown]
# Is one method better than another for your sites? Accuracy on an unseen site varies by several points from seed to
# seed, so one run of each is not enough. Three rules:
#
# - **Choose nothing by the test site**: no epoch, no setting, no method. A number that was chosen for being high is too
#   high; hold out another site for the report.
# - **Several seeds**, the same for both methods, and the difference per seed.
# - **The same budget** for both: as many images through the network. A bench has `--equal-budget` for this.

# %%
from statistics import fmean, stdev

from proud import ProUD
from proud.data.embedded import load_embedded

sites = {name: (images[::2], labels[::2]) for name, (images, labels) in load_embedded().items()}
unlabeled = {name: sites[name][0] for name in ("texture", "print")}
quick = {"size": 16, "batch_size": 32, "lr": 0.03, "device": "cpu", "verbose": False}


def accuracy(method: str, seed: int, epochs: int) -> float:
    """On street, in %: the mean of the last five epochs, so that no epoch is chosen."""
    model = ProUD(method, seed=seed, epochs=epochs, pretrain_epochs=25, **quick)
    model.fit(sites["pen"], unlabeled=unlabeled, test=sites["street"])
    return 100 * model.result_["test_accuracy"]


# %% [markdown]
# In the main phase an epoch of either method is one pass over the unlabeled images, but a step of `proud-plus` puts
# four times as many images through the network as one of `erm`, and twice as many in pretraining. With 31 epochs
# instead of 5, `erm` has the same budget.

# %%
pairs = [(accuracy("erm", seed, epochs=31), accuracy("proud-plus", seed, epochs=5)) for seed in (1, 2, 3)]
for seed, (source_only, ours) in enumerate(pairs, 1):
    print(f"seed {seed}: erm {source_only:.1f} %, proud-plus {ours:.1f} %, difference {ours - source_only:+.1f}")

# %% [markdown]
# The mean difference, and its standard error over the seeds:

# %%
differences = [ours - source_only for source_only, ours in pairs]
print(f"{fmean(differences):+.1f} ± {stdev(differences) / len(differences) ** 0.5:.1f} points")

# %% [markdown]
# A difference of less than twice its standard error may be chance. These runs, with small images and a few epochs, show
# the procedure and say little about the methods. A difference also holds for these sites only: which method is
# better depends on how the sites differ, so hold out every site with labels in turn. `proud bench FOLDER
# --methods proud-plus,erm --seeds 1,2,3 --equal-budget 40` does all of this and writes one table.
