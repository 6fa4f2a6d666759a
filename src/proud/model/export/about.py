"""What an exported file says about itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from proud.files import MOST_TENSOR_BYTES, read_regular
from proud.machine import environment
from proud.model.answers import AnswerOptions
from proud.model.format import WEIGHTS, model_folder
from proud.model.predict import Model
from proud.text import valid_utf8


def about_export(model: Model, folder: Path, options: AnswerOptions) -> dict[str, Any]:
    """Classes, input format, thresholds, and which training and which weights it comes from."""
    trust, spec, config = model.trust, model.spec, model.config
    found: dict[str, Any] = {
        "classes": [valid_utf8(name) for name in model.classes],
        "network": spec.name,
        "size": spec.size,
        "resized_to": model.pixels.side,
        "square": spec.square,
        "mean": list(spec.mean),
        "std": list(spec.std),
        "temperature": trust.temperature if trust else 1.0,
    }
    if trust:
        quantile = trust.quantile(options.coverage, options.sets)
        found |= {"coverage": options.coverage, "sets": options.sets, "quantile": min(quantile, 2.0)}
        found |= {"risk": options.risk, "threshold": trust.threshold(options.risk)}
    found |= {name: config[name] for name in ("method", "labeled", "seed") if name in config}
    found |= {"warnings": [valid_utf8(text) for text in model.warnings]}
    made_by = environment(model.device)
    return found | {
        "weights_sha256": weights_digest(folder),
        "versions": made_by["versions"],
        "commit": made_by["commit"],
    }


def weights_digest(folder: Path) -> str:
    """Of the saved model's weights: which training an exported file comes from."""
    return hashlib.sha256(read_regular(model_folder(folder) / WEIGHTS, MOST_TENSOR_BYTES)).hexdigest()


def as_text(about: dict[str, Any]) -> dict[str, str]:
    """Plain strings: text as it is, everything else as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
