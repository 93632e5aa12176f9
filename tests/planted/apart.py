"""Faults by which one may see, use or harm what is another's."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

TENANTS = "tests/gateway/test_tenants_apart.py"
PRIVACY = "tests/gateway/test_privacy.py"
HOSTILE = "tests/gateway/fleet/test_hostile_worker.py"
REQUESTS = "tests/gateway/http/test_hostile_requests.py"

sessions = Room("worker/programs/sessions.py", ("tests/worker/programs/test_sessions.py",))
files = Room("worker/model/shape.py", ("tests/worker/model/test_hostile_files.py",))
lines = Room("process/lines.py", ("tests/worker/test_privacy.py",))
fields = Room("gateway/fields.py", (HOSTILE,))
wire = Room("gateway/fleet/wire.py", (PRIVACY,))
door = Room("gateway/fleet/openai_door.py", (PRIVACY,))
pipeline = Room("gateway/pipeline.py", (PRIVACY,))
app = Room("gateway/http/app.py", (REQUESTS,))
intake = Room("gateway/http/intake.py", (TENANTS,))
errors = Room("gateway/errors.py", ("tests/gateway/test_errors.py",))

FAULTS: tuple[Fault, ...] = (
    files.fault(
        "a model's own code is asked for",
        "Whoever sits at the terminal says yes, and it runs.",
        "AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)",
        "AutoConfig.from_pretrained(folder, local_files_only=True)",
    ),
    sessions.fault(
        "a flood ends everybody's sessions",
        "The longest unused one gives way, whoever keeps a thousand.",
        "del self._kept[self._least_due()]",
        "self._kept.popitem(last=False)",
    ),
    sessions.fault(
        "a session for who knows its id",
        "Another tenant goes on from what it never saw.",
        "if kept is None or kept.namespace != namespace:",
        "if kept is None:",
    ),
    lines.fault(
        "a gateway's name begins a line",
        "A log has events that never were.",
        "return text if _PLAIN.fullmatch(text) else json.dumps(text)",
        "return text",
    ),
    fields.fault(
        "any worker's name",
        "A header ends where a worker says.",
        "return re.fullmatch(_NAME, text) is not None",
        "return bool(text)",
    ),
    wire.fault(
        "a worker's word of a failure is logged",
        "It may quote the prompt.",
        "    if kind in _FOR_CLIENTS:",
        "    if failed.message:",
    ),
    door.fault(
        "another server's word of a failure is logged",
        "It may quote the prompt.",
        'return WorkerLost(f"it answered {status}{kind_of(msgspec.json.encode(told))}")',
        'return WorkerLost(f"it answered {status}: {told.message}")',
    ),
    pipeline.fault(
        "refusals are logged with their text",
        "A refusal quotes what the client wrote.",
        "isinstance(error, GatewayError) and status >= 500 else None",
        "isinstance(error, GatewayError) else None",
    ),
    errors.fault(
        "a 5xx names a field",
        "A worker chose the word.",
        "param = None if face.status >= 500 else error.param",
        "param = error.param",
    ),
    app.fault(
        "refusals are counted by their text",
        "Every client makes series of its own.",
        'Subject(tenant.id if tenant else "", "", self._route.name)',
        'Subject(tenant.id if tenant else "", error.detail, self._route.name)',
    ),
    intake.fault(
        "a header names the namespace",
        "A tenant takes another's for its own.",
        "namespace=caller.tenant.namespace",
        'namespace=(caller.overrides.session or "").encode() or caller.tenant.namespace',
    ),
)
