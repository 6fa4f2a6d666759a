"""Tables of docs/guide/review.md."""

from __future__ import annotations

from typing import Any

from table_text import source, table


def web_table(found: dict[str, Any]) -> str:
    """`proud review` with many images, and `proud serve` under load."""
    review, serve = found["review"], found["serve"]
    scroll, jumps, labels = review["scrolling"], review["jumps"], review["labels"]
    first = f"{review['first_contentful_paint_ms'] / 1000:.1f} s; {review['first_screen_of_images_ms'] / 1000:.1f} s"
    jump = f"{jumps['images_ms']['p50']:.0f} ms; {jumps['images_ms']['p95']:.0f} ms"
    gaps = f"{scroll['uncovered']}; {scroll['waiting']} of {scroll['cells']:,}"
    times = serve["milliseconds"]
    rows = [
        [f"review, {review['images']:,} images: first look at all of them; start again", seconds(review)],
        ["first paint; all images of the first screen", first],
        [f"scrolling, {scroll['frames']} frames: frames with a gap; images not there yet", gaps],
        ["jump to a far place, until all its images are there: median; 95 %", jump],
        ["one label, until it is on disk: median; the same in a full table", label_times(labels)],
        ["memory of the server, peak", f"{review['server_peak_megabytes']} MB"],
        [
            f"serve, {serve['requests']:,} requests at {serve['connections']} connections: answered; lost",
            answered(serve),
        ],
        ["time of a request: median; 95 %", f"{times['p50']:.0f} ms; {times['p95']:.0f} ms"],
        ["requests per second; images per batch", f"{serve['requests_per_second']}; {serve['images_per_batch']}"],
        ["memory of the service (with PyTorch), peak", f"{serve['server_peak_megabytes']} MB"],
    ]
    words = f"\nOn {found['cores']} cores of a busy machine; images of 32 × 32 pixels, the built-in digits' network.\n"
    return table(["measure", "measured"], rows) + words + source("web.json", found)


def seconds(review: dict[str, Any]) -> str:
    return f"{review['seconds_to_look_at_all_images']:.0f} s; {review['seconds_to_start_again']:.0f} s"


def label_times(labels: dict[str, Any]) -> str:
    return f"{labels['one_ms']['p50']:.0f} ms; {labels['one_in_a_full_table_ms']['p50']:.0f} ms"


def answered(serve: dict[str, Any]) -> str:
    return f"{serve['answered_200']:,}; {serve['lost']}"


def report_text(found: dict[str, Any]) -> str:
    """CPU time of a report of two runs, before and after."""
    before, after = found["before"], found["after"]
    return (
        f"A report of {after['runs']} runs takes {after['least_cpu_seconds']:.1f} s of CPU time "
        f"({before['least_cpu_seconds']:.1f} s at commit {before['commit']}), the least of three.\n"
        + source("report.json", after)
    )
