# A server: maskreg serve, without root, without torch, and without tools to build anything.
#
#   docker build -t maskreg .
#   docker run -p 127.0.0.1:8470:8470 -v maskreg:/data maskreg
#
# docs/how-to/deploy.md says more.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim-trixie AS build
# The version of the compiler is the distribution's.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md CITATION.cff CONTRIBUTING.md SECURITY.md ./
COPY maskreg maskreg
COPY cli cli
COPY migrations migrations
# Without pip in what is kept: the one outside of it installs. There is no version to pin: it is what lies here.
RUN python -m venv --without-pip /opt/maskreg \
    && pip --python /opt/maskreg/bin/python install --no-cache-dir '.[server]' \
    && /opt/maskreg/bin/maskreg --version

FROM python:${PYTHON}-slim-trixie
RUN pip uninstall --yes --root-user-action=ignore pip \
    && groupadd --gid 8470 maskreg \
    && useradd --uid 8470 --gid maskreg --no-create-home --home-dir /data --shell /usr/sbin/nologin maskreg \
    && install --directory --owner maskreg --group maskreg --mode 0700 /data
COPY --from=build /opt/maskreg /opt/maskreg
ENV PATH=/opt/maskreg/bin:$PATH \
    MASKREG_HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 8470:8470
VOLUME /data
EXPOSE 8470
# Answers 200 when the store, the catalog and the accounts do, and their schemas are of this version.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8470/readyz', timeout=8)"]
ENTRYPOINT ["maskreg"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8470"]
