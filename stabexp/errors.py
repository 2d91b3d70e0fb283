"""Every error a user can meet, each with the exit code the command line gives it.

StabexpError                 1  anything below, so that one `except` catches all of ours
├── ConfigError              2  an experiment file, an override or an argument is wrong
├── RunNotFoundError         1  no run has this id, or its directory is gone
├── NotDivergedError         1  the run did not diverge, so there is nothing to bisect
├── CheckpointError          1  no usable checkpoint: missing, torn or altered
├── NotReplayableError       1  something decides the next step that cannot be captured
├── TrainingError            1  the user's training function raised
├── TrackingError            1  the tracking store cannot be read or written
└── BusyError                1  another process holds this run or this bisect

A divergence is a result, never an exception.
"""

from __future__ import annotations


class StabexpError(Exception):
    """Base of all errors raised on purpose; the message gives place, value and remedy."""

    exit_code = 1


class ConfigError(StabexpError):
    """An experiment file, an override or a command-line argument is wrong."""

    exit_code = 2


class RunNotFoundError(StabexpError):
    """No run has this id, or its directory is gone."""


class NotDivergedError(StabexpError):
    """The run did not diverge, so there is nothing to bisect."""


class CheckpointError(StabexpError):
    """No usable checkpoint: missing, torn or altered."""


class NotReplayableError(StabexpError):
    """Something decides the next step that cannot be captured and put back exactly."""


class TrainingError(StabexpError):
    """The user's own training code raised."""


class TrackingError(StabexpError):
    """The tracking store cannot be read or written."""


class BusyError(StabexpError):
    """Another process is working on this run or this bisect."""
