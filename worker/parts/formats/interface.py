"""What is known of a way to write calls. Arguments are a JSON object everywhere.

lead  begin NAME middle ARGUMENTS end  between  begin NAME middle ARGUMENTS end  close
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The text around names and arguments.

    trigger: with what calls begin, in text that is no call; a beginning of lead + begin. opens:
    calls can only be the whole answer, and what begins with the trigger is one. marks: words of
    chat templates that show the format.
    """

    name: str
    trigger: str
    begin: str
    middle: str
    end: str
    lead: str = ""
    between: str = ""
    close: str = ""
    opens: bool = False
    marks: tuple[str, ...] = ()

    @property
    def behind_trigger(self) -> str:
        """What stands between the trigger and the first name."""
        return (self.lead + self.begin).removeprefix(self.trigger)
