"""python -m tests.deploy [--write]: every profile must be valid, every bad value refused."""

from __future__ import annotations

import argparse
import sys

from helm_python import HelmError

from tests.deploy import policies, references, strict
from tests.deploy.bad_values import BAD_VALUES
from tests.deploy.charting import Profile, lint, objects, profiles, render
from tests.deploy.settings import write


def main() -> int:
    """Prints what is wrong, and a last line with the counts; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy")
    parser.add_argument(
        "--write", action="store_true", help="put the programs' settings into values.schema.json"
    )
    if parser.parse_args().write:
        write()
    profiles_ok = invalid = 0
    for profile in profiles():
        found = judged(profile)
        print(f"{'INVALID' if found else 'ok':8} {profile.name}", *found, sep="\n    ")
        profiles_ok += not found
        invalid += bool(found)
    for name, (_, path) in BAD_VALUES.items():
        message = refused(name)
        if path not in message:
            print(f"INVALID  {name} is not refused with {path}: {message or 'it is taken'}")
            invalid += 1
    print(f"refused: {len(BAD_VALUES)} bad values tried")
    print(f"chart: profiles_ok={profiles_ok} invalid={invalid}")
    return 1 if invalid else 0


def judged(profile: Profile) -> list[str]:
    """What is wrong with a profile."""
    try:
        manifests = objects(profile.values)
    except HelmError as error:
        return [str(error)]
    found = [text for manifest in manifests for text in strict.complaints(manifest)]
    allowed = profile.name in NOT_RESTRICTED
    broken = [
        text for text in policies.complaints(manifests) if not (allowed and ": volume" in text)
    ]
    return [*lint(profile.values), *found, *broken, *references.complaints(manifests)]


def refused(name: str) -> str:
    """What Helm says of a bad value; nothing, where it takes it."""
    try:
        render(BAD_VALUES[name][0])
    except HelmError as error:
        return str(error)
    return ""


# A folder of the node is no volume that restricted pods may have; docs/operations.md says so.
NOT_RESTRICTED = {"models-from-everywhere"}

if __name__ == "__main__":
    sys.exit(main())
