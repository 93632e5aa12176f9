"""Four fields of a log line, each of a shape that can't be wrong.

    pando run examples/extract.py --trace out.svg
    pando run examples/extract.py --arg line="2026-03-01 04:00:00 INFO backup: 12 files copied"

Time and service are generated under a regex, level and action are chosen from a list. The text in
front of the line is the same for every line, so the cache has it from the second line on.
"""

import pando

TASK = """Each log line is taken apart.

Line: 2026-02-11 23:59:08 WARN disk-monitor: /dev/sda1 is 91% full
Time: 23:59:08
Level: WARN
Service: disk-monitor
Action: watch

Line: 2026-02-12 03:14:55 ERROR payments: connection to the database refused
Time: 03:14:55
Level: ERROR
Service: payments
Action: call someone

Line: 2026-02-12 08:30:00 INFO web: 200 GET /index.html
Time: 08:30:00
Level: INFO
Service: web
Action: nothing
"""

TIME = "[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"
# The line's end is part of the regex, so that the model may end it; as a stop it is cut off.
SERVICE = "[a-z][a-z0-9-]*\n"


@pando.program
def extract(s, line="2026-02-12 09:41:17 ERROR scheduler: worker 3 does not answer"):
    """Appends `Field: value` lines behind the log line."""
    s += TASK + f"\nLine: {line}\n"
    s += "Time: " + pando.gen("time", max_tokens=12, temperature=0, regex=TIME)
    s += "\nLevel: " + pando.select("level", ["DEBUG", "INFO", "WARN", "ERROR"])
    s += "\nService: "
    s += pando.gen("service", max_tokens=12, temperature=0, regex=SERVICE, stop="\n")
    s += "\nAction: " + pando.select("action", ["nothing", "watch", "call someone"])


LINES = [
    "2026-02-12 09:41:17 ERROR scheduler: worker 3 does not answer",
    "2026-02-12 09:42:00 INFO backup: 1204 files copied",
    "2026-02-12 09:43:31 WARN web: 37 slow requests in the last minute",
]

if __name__ == "__main__":
    for result in extract.run_batch([{"line": line} for line in LINES], temperature=0):
        print(dict(result.variables), f"{result.usage.cached_tokens} prompt tokens were cached")
