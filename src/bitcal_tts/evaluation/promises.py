"""What a profile has promised, beside what was seen: one sentence, the same on every screen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.halting.controller import Controller
from bitcal_tts.traces.outcome import Outcome


def promised(evidence: Mapping[str, Any]) -> str:
    """What is promised, by the evidence of a profile at the served bits."""
    if not evidence["certified"]:
        return f"promised: nothing, so that it never stops early: {what_it_takes(evidence)}"
    of = " of the right answers" if evidence.get("among") == "right" else ""
    to = f" that {evidence['handed_to']} has right" if "handed_to" in evidence else ""
    jointly = ", jointly" if "joint_over" in evidence else ""
    items = evidence["certified_items"]
    return (
        f"promised: at most {_pc(evidence['risk'])} %{of} lost{to} (confidence {evidence['confidence']:g}{jointly}, "
        f"{items:,} items)"
    )


def what_it_takes(evidence: Mapping[str, Any]) -> str:
    """What a certificate would take where there is none."""
    more = evidence["more_items_needed"]
    if more is None:
        return "too much is lost at the strictest threshold already, landings at the budget and loops included"
    return f"about {more:,} more items are needed for at most {_pc(evidence['risk'])} %"


def kept(method: Controller, found: Sequence[Outcome], known: Collection[str] = frozenset()) -> dict[str, Any] | None:
    """What a method's profile promises and what its outcomes show; None for a method that promises nothing.

    Items that the profile was fitted or certified on are `known`, and show nothing.
    `met` is how many they are. `verdict` is `kept` where no more than the promised share was lost, `broken` where the
    interval lies above it, and `unclear` where more was lost than promised but chance may explain it.
    """
    profile = getattr(method.parameters, "profile", None)
    if not method.promises or profile is None:
        return None
    p = method.parameters
    evidence = profile.evidence.get(f"{p.bits:g}")
    if evidence is None:
        return None
    new = [o for o in found if o.item not in known]
    told = {
        "method": p.name, "budget": p.budget, "bits": p.bits, "certified": evidence["certified"], "forced": p.force,
        "met": len(found) - len(new),
    }  # fmt: skip
    among = [o for o in new if o.full_correct] if evidence.get("among") == "right" else new
    if "handed_to" in evidence:  # what the other model has right is not in these outcomes
        return {**told, "line": promised(evidence)}
    shown = seen(evidence, sum(o.lost for o in among), len(among), forced=p.force)
    if evidence["certified"] and len(new) < len(found):
        on = "all of these items" if not new else f"the other {len(found) - len(new):,}"
        end = "" if new else "; seen here: nothing"
        shown["line"] += f"{end} (it was fitted or certified on {on})"
    if p.force and not new:
        shown["line"] += "; it was forced, and promises nothing here"
    return {**told, **shown}


def caution(promises: Iterable[Mapping[str, Any]]) -> str:
    """What to add to a verdict on items that a profile was fitted or certified on; nothing where all are new to it."""
    met = max((promise.get("met", 0) for promise in promises), default=0)
    return f" Its profile has met {met:,} of these items: on others it may do worse." if met else ""


def targets(promises: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, int], float]:
    """The risks that were promised and hold, by run, method and budget: what was forced promises nothing."""
    hold = (p for p in promises if p.get("certified") and not p.get("forced"))
    return {(p.get("run") or "", p["method"], p["budget"]): p["risk"] for p in hold}


def seen(evidence: Mapping[str, Any], lost: int, n: int, *, forced: bool = False) -> dict[str, Any]:
    """What is promised beside what was lost of `n` requests."""
    if not evidence["certified"]:
        return {"line": promised(evidence)}
    risk = evidence["risk"]
    if n == 0:
        return {"risk": risk, "line": promised(evidence)}
    share = wilson(lost, n)
    verdict = "kept" if share.value <= risk else "broken" if share.low > risk else "unclear"
    words = {"unclear": "more than promised, which chance may explain"}.get(verdict, verdict)
    words += ", as far as these can tell" if verdict == "kept" and share.high > risk else ""
    words += ", though it was forced" if forced else ""
    told = f"{lost:,} of {n:,} = {_pc(share.value)} % [{_pc(share.low)}, {_pc(share.high)}]"
    return {
        "risk": risk, "confidence": evidence["confidence"], "items": evidence["certified_items"],
        "lost": lost, "n": n, "lost_rate": share.value, "lost_low": share.low, "lost_high": share.high,
        "verdict": verdict, "line": f"{promised(evidence)}; seen here: {told}: {words}",
    }  # fmt: skip


def _pc(share: float) -> str:
    """A share in percent, with as many digits as it needs."""
    return f"{100 * share:.2g}" if 0 < share < 0.01 else f"{100 * share:.3g}"
