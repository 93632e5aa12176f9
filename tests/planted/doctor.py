"""Faults of the doctor: what it calls a fault, what it calls none, what it tells whom."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

BY_HAND = "tests/gateway/doctor/test_doctor.py"
LIVE = "tests/gateway/test_doctor_live.py"

likeness = Room("gateway/doctor/likeness.py", (BY_HAND,))
history = Room("gateway/doctor/history.py", (BY_HAND,))
doctor = Room("gateway/doctor/doctor.py", (BY_HAND,))
served = Room("gateway/doctor/served.py", (BY_HAND,))
volatile = Room("gateway/doctor/volatile.py", ("tests/gateway/doctor/test_volatile.py",))
memory = Room("gateway/doctor/memory.py", (BY_HAND,))
practice = Room("gateway/doctor/practice.py", (LIVE,))
session = Room("gateway/fleet/session.py", (LIVE,))

FAULTS: tuple[Fault, ...] = (
    likeness.fault(
        "doctor: the first value is blamed",
        "A date that never changes is named in place of the counter that does.",
        "if was is None or is_now is None or was.digest != is_now.digest:",
        "if was is None or is_now is None or was.digest:",
    ),
    likeness.fault(
        "doctor: tools in another order have other keys",
        "Whoever sorts keys finds nothing to sort.",
        "Reason.KEY_ORDER if new.tools == old.tools else Reason.TOOL_ORDER",
        "Reason.KEY_ORDER",
    ),
    likeness.fault(
        "doctor: any list of tools is a change of the last",
        "Two applications under one system prompt raise an alarm with every switch.",
        "if before == now or len(before ^ now) > max(FEW_TOOLS, len(before | now) // 5):",
        "if before == now:",
    ),
    history.fault(
        "doctor: questions that look alike are one",
        "A customer's order number is called a counter in the prefix.",
        "    return min(shape.num_chars, old.num_chars) - place >= SAME_CHARS\n",
        "    return True\n",
    ),
    history.fault(
        "doctor: a history that was cut is not looked for",
        "A window that slides is called never seen.",
        "        if shift > 0:\n",
        "        if shift > 99:\n",
    ),
    doctor.fault(
        "doctor: owners are told apart by model alone",
        "A tenant is told of another one's prompts.",
        "owner = self._tag(asked.tenant, asked.model, asked.namespace)",
        'owner = self._tag("", asked.model, b"")',
    ),
    doctor.fault(
        "doctor: what the worker told of a boundary is ignored",
        "Estimates by bytes call a hit a miss.",
        "        if told is not None:\n",
        "        if told is None:\n            told = 0\n        if told > 10**9:\n",
    ),
    doctor.fault(
        "doctor: text in every finding",
        "Prompts' text is kept where nobody allowed it.",
        "if not self._settings.show_text or fault is None",
        "if fault is None",
    ),
    served.fault(
        "doctor: an eviction before the last use counts",
        "What was stored again long ago is still called evicted.",
        "if left is not None and left.at >= since:",
        "if left is not None:",
    ),
    served.fault(
        "doctor: a new process holds what the last one held",
        "A restart is called an eviction that nobody has told of.",
        "    if lives != seen.incarnation:\n",
        "    if lives is None:\n",
    ),
    volatile.fault(
        "doctor: days of the week are words",
        "`Tuesday` in a system prompt is not seen to change.",
        "    return _merged(found, _without_digits(text))\n",
        "    return found\n",
    ),
    memory.fault(
        "doctor: the memory has no bound",
        "It grows with the traffic.",
        "while len(self._sights) > self._max_parts or self.num_bytes > self._max_bytes:",
        "while False:",
    ),
    practice.fault(
        "doctor: its failure is the request's",
        "A defect in the diagnosis ends requests.",
        "            visit = self.doctor.asked(asked, self._telemetry.clock())\n"
        "        except Exception:\n            self._failed()\n            return None\n",
        "            visit = self.doctor.asked(asked, self._telemetry.clock())\n"
        "        except ZeroDivisionError:\n            return None\n",
    ),
    session.fault(
        "doctor: evictions are not remembered",
        "What gave way is called unexplained.",
        "                self._context.departures.note(self._worker, event.digest, departure)\n",
        "                del departure\n",
    ),
)
