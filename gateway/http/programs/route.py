"""What POST /v1/programs is for: a request understood as a job of one part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from gateway.errors import SessionLost
from gateway.http.answer import Heading
from gateway.http.inbound import worked
from gateway.http.intake import Caller, own_overrides
from gateway.http.programs.answer import ProgramAnswer, Shape
from gateway.http.programs.check import Size
from gateway.http.programs.kept import KeptTexts
from gateway.http.programs.prompts import prompts_of
from gateway.http.programs.request import ProgramRequest, read_program
from gateway.http.service import Order, Service
from gateway.http.tiers import tier_of
from gateway.job import Job
from gateway.job import Part as JobPart
from gateway.request import Ask, Decoding, ProgramPrompt, Sampling, Session, Stopping
from gateway.routing.prefix import Chain, Scope, chat_chain, text_chain
from gateway.routing.route import Want
from gateway.tenant_config import PolicyConfig
from proto.program import Gen, Message, Node, Part, Program, Select, Text, walk

# Of a worker's credit; more runs side by side if there is room.
_MAX_WIDTH = 16


class Programs:
    """POST /v1/programs."""

    name = "programs"

    def __init__(self, service: Service):
        self._service = service
        self._kept = KeptTexts()

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, config = self._service, self._service.config
        read = partial(read_program, body, config.limits, config.programs)
        request, size = await worked(len(body), read)
        model = service.catalogue.resolve(request.model, caller.tenant)
        caller, tier = tier_of(request.service_tier, caller)
        session, worker = self._session(request)
        work = partial(self._job, request, size, model, caller, session, worker)
        job = await worked(len(body), work)
        created = int(service.wall_clock())
        heading = Heading(f"prog-{service.make_id()}", created, request.model, tier)
        note = partial(self._kept.note, caller.tenant.namespace)
        answer = ProgramAnswer(heading, _shape(request, session), note)
        return Order(job, answer, answer if request.stream else None)

    def _session(self, request: ProgramRequest) -> tuple[Session | None, str | None]:
        """The session, and the worker that it is kept at. Raises SessionLost."""
        asked = request.session
        if asked is None:
            return None, None
        if asked.id is None:
            return Session(self._service.make_id(), asked.ttl_s) if asked.ttl_s else None, None
        worker, _, word = asked.id.rpartition("~")
        if worker not in {one.name for one in self._service.fleet.workers()}:
            raise SessionLost("The session's worker is gone; send the program from its beginning.")
        return Session(word, asked.ttl_s, resumes=True), worker

    def _job(
        self,
        request: ProgramRequest,
        size: Size,
        model: str,
        caller: Caller,
        session: Session | None,
        worker: str | None,
    ) -> Job:
        tenant = caller.tenant
        chain = self._chain(request, model, caller)
        policy = tenant.policy if worker is None else PolicyConfig("dedicated", (worker,))
        named = caller.overrides.session or request.prompt_cache_key or request.user
        kept_bytes = 0
        if session is not None and session.resumes:
            kept_bytes = self._kept.num_bytes(tenant.namespace, session.id)
        asked = prompts_of(request.program, kept_bytes).tokens
        source = _source(request, caller.seed)
        prompt = ProgramPrompt(source, chain.num_bytes, asked, size.tokens)
        ask = Ask(
            trace_id=caller.request_id,
            tenant=tenant.id,
            namespace=tenant.namespace,
            prompt=prompt,
            decoding=Decoding(Sampling(), Stopping()),
            share=tenant.share,
            session=session,
            width=min(size.width, _MAX_WIDTH),
        )
        part = JobPart(Want(model, tenant.id, chain, policy, named), ask)
        return Job(caller.request_id, tenant, model, self.name, (part,))

    def _chain(self, request: ProgramRequest, model: str, caller: Caller) -> Chain:
        """The beginning that is literal; the rest depends on what is generated."""
        scope = Scope(model, caller.tenant.namespace)
        overrides = own_overrides(request.prompt_cache_key, caller)
        messages = list(_literal_messages(request.program))
        if messages:
            return chat_chain(scope, messages, overrides=overrides)
        lead = self._service.config.routing.completion_key_chars
        return text_chain(scope, _literal_text(request.program), lead, overrides)


def _source(request: ProgramRequest, seed: int) -> bytes:
    """What the worker is told: the nodes, and a seed where the client named none."""
    sampling = request.sampling
    if sampling.seed is None:
        sampling = msgspec.structs.replace(sampling, seed=seed)
    told = Program(program=request.program, sampling=sampling, heal=request.heal)
    return msgspec.json.encode(told)


def _shape(request: ProgramRequest, session: Session | None) -> Shape:
    named = [node for node in walk(request.program) if isinstance(node, Gen | Select)]
    return Shape(
        {node.name: node.n if isinstance(node, Gen) else 1 for node in named},
        frozenset(node.name for node in named if isinstance(node, Select)),
        session.id if session else "",
        session.ttl_s if session else 0,
    )


def _literal_messages(nodes: Sequence[Node]) -> Iterator[dict[str, object]]:
    """The first messages, as far as they are known before anything is generated."""
    for node in nodes:
        if not isinstance(node, Message):
            return
        texts = [_literal(one.text) if isinstance(one, Text) else None for one in node.body]
        if None in texts:
            return
        yield {"role": node.role, "content": "".join(text or "" for text in texts)}


def _literal_text(nodes: Sequence[Node]) -> str:
    texts: list[str] = []
    for node in nodes:
        text = _literal(node.text) if isinstance(node, Text) else None
        if text is None:
            break
        texts.append(text)
    return "".join(texts)


def _literal(parts: Sequence[Part]) -> str | None:
    return None if any(not isinstance(part, str) for part in parts) else "".join(map(str, parts))
