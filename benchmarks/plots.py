"""A picture of each target: the contestants' figures side by side, with their ranges. PNG."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Sequence

from benchmarks.figures import Better, Result

_OURS, _OTHERS = "#1f6f54", "#b8bec7"


def plot(results: Sequence[Result], directory: pathlib.Path) -> None:
    """One file a target, TARGET.png; and ratios.png, of all that have a peer."""
    import matplotlib

    matplotlib.use("Agg")
    for result in results:
        if result.runs:
            _bars(result, directory / f"{result.target.name}.png")
    if compared := [result for result in results if result.ratio() is not None]:
        _ratios(compared, directory / "ratios.png")


def _bars(result: Result, path: pathlib.Path) -> None:
    from matplotlib import pyplot

    names = list(result.runs)
    figures = [[run.figure for run in result.runs[name]] for name in names]
    medians = [statistics.median(each) for each in figures]
    errors = [
        [median - min(each) for median, each in zip(medians, figures, strict=True)],
        [max(each) - median for median, each in zip(medians, figures, strict=True)],
    ]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.55 * len(names)))
    colours = [_OURS if name.startswith("minilog") else _OTHERS for name in names]
    axes.barh(names, medians, xerr=errors, color=colours, ecolor="#444444", capsize=3)
    axes.invert_yaxis()
    for place, median in enumerate(medians):
        axes.annotate(f"{median:,.4g}", (0, place), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_xlabel(f"{result.target.unit} ({result.target.better.value} is better)")
    axes.set_title(f"{result.target.name}: {result.target.title}", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _ratios(results: Sequence[Result], path: pathlib.Path) -> None:
    """How many times better: below 1, worse."""
    from matplotlib import pyplot

    times = []
    for result in results:
        ratio = result.ratio()
        assert ratio is not None
        times.append(ratio if result.target.better is Better.HIGHER else 1 / ratio)
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.4 * len(results)))
    names = [result.target.name for result in results]
    axes.barh(names, [each - 1 for each in times], left=1, color=[_OURS if each >= 1 else "#c2593f" for each in times])
    axes.axvline(1.0, color="#444444", linewidth=1)
    for place, each in enumerate(times):
        axes.annotate(f"{each:.2g}", (max(each, 1), place), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_xscale("log")
    lowest, highest = min(0.5, *times) / 1.1, max(2, *times) * 1.3
    ticks = [each for each in (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100) if lowest <= each <= highest]
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    axes.set_xlim(lowest, highest)
    axes.minorticks_off()
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xlabel("times better than the peer (left of the line: worse)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
