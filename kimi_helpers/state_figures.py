"""What notebook 06 shows of captured states: norms, a logit lens, and how well the border check finds wrong rows."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.figure import Figure

from kimi_helpers.border_check import Roc
from kimi_helpers.captures import Capture
from kimi_helpers.hidden_states import CapturedRow
from kimi_helpers.target_models import Target

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_STYLES = ("-", "--", "-.", ":")


def state_names(capture: Capture) -> list[str]:
    """What the states of a token are called in figures and tables."""
    return [*(f"layer {layer}" for layer in capture.layers), f"last, {capture.last_norm}-norm"]


@torch.inference_mode()
def state_table(target: Target, captured: Sequence[CapturedRow], capture: Capture) -> pd.DataFrame:
    """Norms and a logit lens, a row a state.

    `agrees` is the share of tokens for which the final norm and the head, put on that state, name the same likeliest
    token as they do on the last state.
    """
    states = torch.cat([each.states for each in captured]).float()
    norms = states.norm(dim=-1)
    device, dtype = target.device, next(target.norm.parameters()).dtype
    named = []
    for place in range(capture.states):
        state = states[:, place].to(device, dtype)
        is_normed = place == capture.states - 1 and capture.last_norm == "post"
        chunks = (target.head(part if is_normed else target.norm(part)).argmax(-1) for part in torch.split(state, 256))
        named.append(torch.cat(list(chunks)).cpu())
    return pd.DataFrame(
        {
            "norm, median": norms.median(0).values.tolist(),
            "norm, largest": norms.max(0).values.tolist(),
            "agrees": [(one == named[-1]).float().mean().item() for one in named],
        },
        index=pd.Index(state_names(capture), name="state"),
    )


def lens_figure(table: pd.DataFrame) -> Figure:
    """Norms and the logit lens of `state_table`, side by side."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained", sharey=True)
    names = [str(name) for name in table.index][::-1]
    left.bar_label(left.barh(names, table["norm, median"][::-1], color=_COLOURS[0]), fmt="{:.3g}", padding=3)
    left.margins(x=0.2)
    left.set_xlabel("norm, median over tokens")
    bars = right.barh(names, table["agrees"][::-1], color=_COLOURS[2])
    right.bar_label(bars, fmt="{:.0%}", padding=3)
    right.set_xlim(0, 1.15)
    right.set_xlabel("logit lens: same likeliest token as the last state")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def describe_lens(table: pd.DataFrame) -> str:
    """The content of `lens_figure` in words."""
    rows = (f"{name}: norm {row.iloc[0]:.3g}, agrees {row['agrees']:.0%}" for name, row in table.iterrows())
    return "Bars by state. " + "; ".join(rows) + "."


def roc_figure(curves: Mapping[str, Roc]) -> Figure:
    """A ROC curve for each kind of planted error."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for place, (kind, curve) in enumerate(curves.items()):
        axes.plot(
            curve.false_alarms,
            curve.found,
            color=_COLOURS[place % len(_COLOURS)],
            linestyle=_STYLES[place % len(_STYLES)],
            label=f"{kind}: {curve.area:.2f}",
        )
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    axes.set_xlabel("share of right rows flagged")
    axes.set_ylabel("share of wrong rows flagged")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="area under the curve", frameon=False, loc="lower right")
    return figure


def describe_roc(curves: Mapping[str, Roc]) -> str:
    """The content of `roc_figure` in words."""
    return "ROC curves. Area by planted error: " + ", ".join(f"{k} {c.area:.2f}" for k, c in curves.items()) + "."
