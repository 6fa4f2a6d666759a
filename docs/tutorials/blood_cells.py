# %% [markdown]
# White blood cells from four laboratories, each with its own microscope, stain and zoom. Barcelona, the large one, has
# labels. cellavision and tecom have images only. bccd stands for a laboratory that joins later: its labels are used for
# measuring only. This tutorial goes from the folders to an exported model, with shell commands.
# [Real sites](../results/real-sites.md) describes the data and has all methods and seeds.
#
# The environment variable `WBC` names the folder of the images, `LABORATORY/CLASS/*`. `WEIGHTS` may name a file with
# ImageNet weights of ResNet-18; without it they are downloaded. It trains three times, which takes a GPU.

# %%
import csv
import os
import shlex
import subprocess
import sys
from pathlib import Path

Path("cells").symlink_to(Path(os.environ["WBC"]).absolute())
train = f"train --data cells --labeled barcelona --test bccd --weights {os.environ.get('WEIGHTS', 'auto')}"


def proud(command: str) -> None:
    """Run `proud COMMAND` and print what it prints, without the lines of single epochs."""
    done = subprocess.run(
        [sys.executable, "-m", "proud", *shlex.split(command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
    )
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    print(*(line for line in lines if not line.startswith(("pretrain ", "main ")) and line[1:2] != ":"), sep="\n")
    assert done.returncode <= 1, f"exit code {done.returncode}"


# %% [markdown]
# Check the data first. Exit code 1 means that training would warn, 2 that it would refuse.

# %%
proud("data check cells --labeled barcelona --test bccd")

# %% [markdown]
# The classes are even in barcelona and very uneven elsewhere, so accuracy depends little on rare classes: look at the
# recalls. Now the default method, with its defaults for photographs.

# %%
proud(f"{train} --out first")

# %% [markdown]
# The verdicts at the end are estimates made without labels of these sites. To see what the unlabeled images gained,
# train the same network on barcelona alone and compare both on the same images of bccd:

# %%
proud(f"{train} --out plain --method erm")
proud("evaluate first --domain bccd --against plain")

# %% [markdown]
# All images of a new site can be classified together, without training. Whether that helps at this site:

# %%
proud("evaluate first --domain bccd --adapt")

# %% [markdown]
# A few labels of the unlabeled sites are the next step. `label-next` chooses the images, 20 per site, and shows them
# in `next.html`. An expert fills in the column `label`; here the labels are taken from the names of the folders.

# %%
proud("label-next first --k 20 --out next.csv")
with Path("next.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))
for row in rows:
    row["label"] = Path(row["path"]).parent.name
with Path("next.csv").open("w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)

right = sum(row["label"] == row["guess"] for row in rows)
print(f"{len(rows)} images labeled; the guess was right for {right}")

# %% [markdown]
# Train again with these labels, and compare at bccd, which contributed none:

# %%
proud(f"{train} --labels next.csv --out second")
proud("evaluate second --domain bccd --against first")

# %% [markdown]
# One file to deploy, with preprocessing and calibration inside. It is kept only if its answers equal the model's.

# %%
proud("export second --format torch --out cells.pt2")
