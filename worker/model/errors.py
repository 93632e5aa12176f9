"""Why a model folder can't be served.

Exception
  UnsupportedModel    the folder, its architecture or an option of it; the message is a sentence
"""

from __future__ import annotations


class UnsupportedModel(Exception):
    """The model cannot run on paged K/V here; the message names what and why."""
