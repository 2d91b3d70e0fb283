"""Every command of the application with arguments that make it do its work once."""

from __future__ import annotations

ROOT = ("--root", "root")

COMMANDS: dict[str, tuple[tuple[str, ...], int]] = {
    "run": (("calm.yaml", *ROOT), 0),
    "bisect": (("late", "--variables", "learning_rate", *ROOT), 0),
    "log": (("late", *ROOT), 0),
    "list": (ROOT, 0),
    "schema": ((), 0),
    "version": ((), 0),
    "sync": (("calm", *ROOT), 0),
    "check": (("calm.yaml", "--steps", "2"), 6),
    "replay": (("late", "--set", "optimizer.lr=0.08", "--steps", "3", *ROOT), 0),
    "compare": (("late", "calm", *ROOT), 0),
    "recover": (("late", "--without-verdict", "--workers", "0", *ROOT), 0),
    "warn": (("late", *ROOT), 0),
    "diagnose": (("late", *ROOT), 3),
    "health": (("late", *ROOT), 0),
    "locate": (("late", *ROOT), 4),
    "figures": (("late", *ROOT), 0),
    "lr-find": (("calm.yaml", "--steps", "60", "--trial-steps", "0"), 0),
    "clip-advice": (("late", *ROOT), 0),
    "events": (("late", *ROOT), 0),
    "report": (("late", "--out", "late.html", *ROOT), 0),
    "samples": (("late", "0", "1", *ROOT), 0),
}
"""Command → (arguments, exit code), to be typed where late.yaml, calm.yaml and root/ are."""

SLOW: dict[str, tuple[tuple[str, ...], int]] = {"demo": (("-q",), 0)}
SERVING = {"ui", "metrics"}
"""What ends with Ctrl-C and shows pages, not an answer."""
