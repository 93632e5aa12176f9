# The gateway: no torch, no compiler, no shell needed.
#     docker build -f deploy/docker/gateway.Dockerfile -t pando/gateway:0.1.0 .

FROM python:3.11.14-slim-bookworm AS libraries
WORKDIR /app
COPY deploy/docker/gateway.requirements.txt ./
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r gateway.requirements.txt

FROM python:3.11.14-slim-bookworm
WORKDIR /app
COPY --from=libraries /venv /venv
COPY gateway gateway
COPY process process
COPY proto proto
# Byte code now: the root is read-only later.
RUN /venv/bin/python -m compileall -q gateway process proto
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 GRPC_VERBOSITY=ERROR
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["python", "-m", "gateway"]
CMD ["--host", "0.0.0.0"]
