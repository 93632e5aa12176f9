"""What can go wrong in a load test.

LoadTestError           a sentence; the command ends with status 1
├── FleetFailed         the fleet that was started for the purpose didn't come up
├── RequestRefused      a server's answer that is none
├── UnreadableLog       a log that cannot be read, or in which no line is a request
└── BadDocument         a page of benchmarks whose blocks are not those that are filled
"""

from __future__ import annotations


class LoadTestError(Exception):
    """A sentence for the user."""


class FleetFailed(LoadTestError):
    """The fleet that was started for the purpose didn't come up."""


class RequestRefused(LoadTestError):
    """A server's answer that is none."""


class UnreadableLog(LoadTestError):
    """A log that cannot be read, or in which no line is a request."""


class BadDocument(LoadTestError):
    """A page of benchmarks whose blocks are not those that are filled."""
