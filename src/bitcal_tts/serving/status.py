"""What a pilot knows, for people and the page."""

from __future__ import annotations

import time
from typing import Any

from bitcal_tts.calibration.anytime import Mean, needed, rate_interval
from bitcal_tts.halting.words import percent
from bitcal_tts.serving.state import Counts, State, Terms


def described(name: str, remembered: dict[str, Any]) -> dict[str, Any]:
    """What a pilot knows, for people and the page."""
    told, terms = remembered["state"], Terms(**remembered["terms"])
    of, counts = told["round"], told["counts"]
    served, alarm, saved = told["served"], told["alarm"], Mean(**told["saved"])
    stands = told.get("standing") is not None
    thresholds = []
    if of is not None:
        for i, (t, (n, losses, highest), (cost, full)) in enumerate(
            zip(of["thresholds"], of["bets"], of["costs"], strict=True)
        ):
            share = cost / full if full else None
            thresholds.append({"threshold": t, "n": n, "losses": losses, "evidence": highest, "share": share,
                               "promised": i < of["passed"], "served": i == served and not stands})  # fmt: skip
    level = (1 - terms.confidence) / 2 if of is None else of["level"]
    shadow = None
    if served is not None and alarm is not None:
        low, high = rate_interval(alarm["losses"], alarm["n"])
        share = saved.interval
        shadow = {"n": alarm["n"], "lost": alarm["losses"], "lost_low": low, "lost_high": high, "saved": saved.mean,
                  "saved_low": share[0], "saved_high": share[1]}  # fmt: skip
    return {
        "name": name,
        "setting": remembered["setting"],
        "phase": "learning" if served is None else "stopping",
        "since": told["since"],
        "why": _why(told),
        "risk": terms.risk,
        "confidence": terms.confidence,
        "requests": Counts(**counts).requests,
        "counts": counts,
        "epoch": told["epoch"],
        "learned": told["learned"],
        "due": told["due"],
        "net": Counts(**counts).net(saved),
        "at_least": needed(terms.risk, level),
        "level": level,
        "thresholds": thresholds,
        "stands": stands,
        "shadow": shadow,
        "events": told["events"][-20:],
        "history": told["history"],
    }


def _net(share: float) -> str:
    """What all of it has come to so far, what finding out took included."""
    if share < 0:
        return f"net of what was saved, finding out has taken {percent(-share)} of all tokens so far"
    return f"net of all that finding out took, {percent(share)} saved so far"


def _why(told: dict[str, Any]) -> str:
    """Why it is where it is; before anything can be tried, what is waited for."""
    if told["round"] is not None or not told["learned"] or told["why"] != State.why:
        return str(told["why"])
    return f"{told['learned']} of the {told['due']} requests that the first scorer takes have been learned from"


def _trial(one: dict[str, Any]) -> str:
    """How the scorer does that is being tried: at its strictest threshold, which has to hold first."""
    if not one["thresholds"]:
        return ""
    strictest = one["thresholds"][0]
    return f"; tried on {strictest['n']}, of which the strictest threshold has lost {strictest['losses']}"


def _interval(low: float, high: float) -> str:
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def _style(setting: dict[str, Any]) -> str:
    """Thinking, or not, where that is known."""
    return f", {setting['style']}" if isinstance(setting.get("style"), str) else ""


def _requests(n: int) -> str:
    return f"{n} request{'' if n == 1 else 's'}"


def in_words(one: dict[str, Any]) -> list[str]:
    """A pilot's status, line by line: the verdict first."""
    setting, counts, shadow = one["setting"], one["counts"], one["shadow"]
    tried = max((t["n"] for t in one["thresholds"]), default=0)
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["since"]))
    promise = f"at most {percent(one['risk'])} of answers changed, confidence {one['confidence']:g}"
    lines = [f"{one['phase']} since {since}: {one['why']}"]
    if shadow is None:
        lines.append(f"to be promised: {promise}; it takes {one['at_least']} tries without a loss, or more with some")
        lines.append(f"learned from {_requests(one['learned'])} (the next scorer is due at {one['due']}){_trial(one)}")
        if any(threshold["promised"] for threshold in one["thresholds"]):
            lines.append(
                "what is proven so far saves nothing to speak of, and is not promised: looser ones are being tried"
            )
        lines.append(_net(one["net"]))
    else:
        lost, n = shadow["lost"], shadow["n"]
        seen = f"{lost} of {n} = {percent(lost / max(1, n))} {_interval(shadow['lost_low'], shadow['lost_high'])}"
        saved = f"{percent(shadow['saved'])} {_interval(shadow['saved_low'], shadow['saved_high'])}"
        lines.append(f"promised: {promise}; seen since, of the share that runs to its end: {seen}")
        lines.append(f"a stop saves {saved} of the tokens; {_net(one['net'])}")
        if one["stands"]:
            lines.append(
                f"that promise stands while a scorer that may save more is tried, on {_requests(tried)} so far"
            )
    who = f"{setting.get('model')} at {setting['bits']:g} bits{_style(setting)}"
    asked = f"temperature {setting.get('temperature')}, budget {setting.get('budget')} (setting {one['name']})"
    lines.append(
        f"{who}, {asked}: {_requests(one['requests'])}, {counts['stopped']} stopped, {counts['watched']} watched, "
        f"{counts['trial_tokens']} tokens of side requests"
    )
    return lines
