"""Time of the report's t-SNE: python benchmarks/tsne.py [POINTS] writes benchmarks/results/tsne.json."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import sklearn

from proud.report.figures.maps import ITERATIONS, PCA_TO, embed

FEATURES, CLASSES, DOMAINS = 512, 7, 4


def features(points: int) -> np.ndarray:
    """Unit features of a ResNet-18's size, clustered by class and domain."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(CLASSES, 1, FEATURES)) + random.normal(size=(1, DOMAINS, FEATURES))
    chosen = centers[random.integers(0, CLASSES, points), random.integers(0, DOMAINS, points)]
    found = chosen + random.normal(scale=1.2, size=(points, FEATURES))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    data = features(points)
    embed(data[:500])  # imports
    busy = os.getloadavg()[0]
    started, worked = time.perf_counter(), time.process_time()
    places = embed(data)
    wall, cpu = time.perf_counter() - started, time.process_time() - worked
    assert places.shape == (points, 2)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    result = {
        "points": points,
        "features": FEATURES,
        "pca_to": PCA_TO,
        "iterations": ITERATIONS,
        "threads": 1,
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "load_before": round(busy, 2),
        "cores": os.cpu_count(),
        "machine": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version(), "scikit-learn": sklearn.__version__},
        "commit": commit,
        "command": f"python benchmarks/tsne.py {points}",
    }
    out = Path(__file__).parent / "results" / "tsne.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
