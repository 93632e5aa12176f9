"""The page's part of the wiring: what it reads, and its routes for each server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from starlette.routing import Route

from gateway.doctor.doctor import Doctor
from gateway.fleet.links import Links
from gateway.http.admin import admin_of
from gateway.http.service import Service
from gateway.ui.fleet import Crew
from gateway.ui.history import History
from gateway.ui.routes import Door, everybody, ui_routes, while_open
from gateway.ui.state import Sources, State


@dataclass(frozen=True, slots=True)
class Ui:
    """public, admin: the routes for each server. history: must be watched in the background."""

    public: list[Route]
    admin: list[Route]
    state: State
    history: History


def build_ui(service: Service, links: Links, doctor: Doctor | None) -> Ui:
    """Every object of the page, joined."""
    config, telemetry, fleet = service.config, service.telemetry, service.fleet
    foreign = tuple(member.name for member in config.foreign)
    crew = Crew(fleet, links.statuses, foreign, telemetry.clock)
    history = History(telemetry.totals, telemetry.clock, crew.look)
    state = State(
        Sources(
            name=config.name,
            fleet=fleet,
            crew=crew,
            history=history,
            telemetry=telemetry,
            recent=None if doctor is None else doctor.recent,
            waiting=service.pipeline.means.dispatcher.waiting,
        )
    )
    openly = while_open(service.tenants)
    public = Door(openly, openly, service.log, service.make_id)
    keyed = Door(everybody, partial(admin_of, config), service.log, service.make_id)
    return Ui(ui_routes(state, public), ui_routes(state, keyed), state, history)
