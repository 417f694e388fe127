# kas in a container:
#
#   docker build -t kas .
#   docker run -d --name kas --stop-timeout 30 -p 127.0.0.1:6443:6443 -v kas:/data kas
#   docker exec kas cat /data/admin.kubeconfig > kubeconfig
#
# Flags go behind the image's name: docker run … kas --controllers=none. What is in /data is kept: the store, certificates, tokens.
# The stop timeout is longer than --shutdown-grace (20 s), so that requests can end; docker kills after 10 s otherwise.
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
# The headers are Debian's where its Python is used.
RUN python3-config --includes || apt-get install -y --no-install-recommends python3-dev
COPY . /src
RUN python3 -m venv /opt/kas && /opt/kas/bin/pip install --no-cache-dir '/src[etcd,kms,tracing]' && /opt/kas/bin/python -m compileall -q /opt/kas

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/kas /opt/kas
ENV PATH=/opt/kas/bin:$PATH
RUN install -d -m 700 -o 65532 -g 65532 /data
USER 65532:65532
VOLUME /data
EXPOSE 6443
STOPSIGNAL SIGTERM
ENTRYPOINT ["kas", "serve", "--data-dir=/data", "--bind-address=0.0.0.0"]
