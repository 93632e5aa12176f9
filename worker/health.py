"""The gRPC services beside the link: health and reflection."""

from __future__ import annotations

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from proto import worker_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Worker"].full_name


class Health:
    """What the standard health service says of the whole server and of the worker's service."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()  # type: ignore[attr-defined] # the stubs lack it

    def serve(self, server: grpc.aio.Server) -> None:
        """Adds health and reflection to a server."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

    async def set_serving(self, *, serving: bool) -> None:
        """Says whether new requests are welcome."""
        kind = health_pb2.HealthCheckResponse
        status = kind.SERVING if serving else kind.NOT_SERVING
        for name in ("", SERVICE):
            await self._servicer.set(name, status)
