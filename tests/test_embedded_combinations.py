"""All twelve combinations of the built-in set, source-only beside ProUD: `make test-slow` prints the table."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from proud.config import Options, RunConfig
from proud.methods import method_config
from proud.methods.presets import preset
from proud.training.run import train

DOMAINS = ("pen", "texture", "print", "street")


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_report_of_all_combinations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for labeled, test in permutations(DOMAINS, 2):
        for method in ("erm", "proud"):
            run = RunConfig(data="embedded", labeled=labeled, test=test, method=method)
            options = Options(out=str(tmp_path / f"{labeled}-{test}-{method}"), quiet=True, eval_every=100)
            result = train(run, method_config(method, **preset("embedded")), options)
            scores.setdefault((labeled, test), {})[method] = 100 * result["test_accuracy"]
    with capsys.disabled():
        print(f"\n{'labeled':>10} {'unseen':>10} {'erm':>7} {'proud':>7}")
        for (labeled, test), row in scores.items():
            print(f"{labeled:>10} {test:>10} {row['erm']:>7.1f} {row['proud']:>7.1f}")
    assert len(scores) == 12
    for row in scores.values():
        assert all(0 <= score <= 100 for score in row.values())
    # the domains differ: source-only training is far from perfect on an unseen one, on average
    assert sum(row["erm"] for row in scores.values()) / 12 < 80
