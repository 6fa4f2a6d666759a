# %% [markdown]
# You have folders of images, one per site, and labels at one site only. This tutorial trains on them, predicts for a
# site that was not used in training, and saves the model. Its data is the built-in set, written to folders first:
# replace them with yours.

# %%
from pathlib import Path

from PIL import Image

from proud.data.embedded import load_embedded

for site, (images, labels) in load_embedded().items():
    for number, (image, label) in enumerate(zip(images[::2], labels[::2], strict=True)):
        folder = Path("sites") / site / (str(label) if site in ("pen", "street") else "")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:03d}.png")
print(*sorted(str(path) for path in Path("sites").glob("*/*"))[:3], "...", sep="\n")

# %% [markdown]
# `pen` has one folder per class. `texture` and `print` have no labels: their images may lie in any folders. `street`
# is the site that the model is for; it has labels here, so that the result can be checked.
#
# These settings take seconds and give a poor model. Leave `size`, `epochs` and `pretrain_epochs` out for the defaults
# of your data.

# %%
from proud import ProUD

model = ProUD(size=16, epochs=5, pretrain_epochs=25, batch_size=32, lr=0.03, seed=1, device="cpu", verbose=False)
model.fit(labeled="sites/pen", unlabeled=["sites/texture", "sites/print"])
print(model)

# %% [markdown]
# The accuracy on validation images holds for the labeled site and for no other site. Predictions have a confidence:

# %%
table = model.predict_table("sites/street")
for row in range(0, 200, 40):
    print(Path(table["path"][row]).name, table["label"][row], f"{table['confidence'][row]:.2f}")

# %% [markdown]
# Before you rely on it at a new site, label a few dozen images there and measure:

# %%
print(f"accuracy on street: {100 * model.score('sites/street'):.0f} %")

# %% [markdown]
# A model is a folder that can be copied, loaded and exported alone.

# %%
from proud import load

model.save("model")
print(*sorted(path.name for path in Path("model").iterdir()))
print((load("model").predict_proba("sites/street") == model.predict_proba("sites/street")).all())
