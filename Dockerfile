# One image for both: on CPUs as it is, for NVIDIA GPUs with
#   --build-arg TORCH_INDEX=https://pypi.org/simple --build-arg EXTRAS=cuda
# docs/deployment.md says how to name the base by its digest, so that every build starts from the same bytes.
ARG BASE=python:3.12-slim-bookworm
FROM $BASE

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1 UV_NO_CACHE=1

# A volume takes over the owner of the folder that it is mounted on, so these are made here.
RUN useradd --create-home --uid 10001 tutti \
    && install --directory --owner=tutti --group=tutti /home/tutti/.cache /home/tutti/.local/state

WORKDIR /srv/tutti

# By far the largest layer, and the one that changes least. The index decides whether it comes with CUDA.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --index-url "$TORCH_INDEX" "$TORCH"

ARG EXTRAS=
# Triton compiles what launches its kernels, at run time.
RUN case ",$EXTRAS," in *,cuda,*) \
    apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* ;; esac

# Dependencies before the code, so that an edit does not fetch them again. The package metadata names a page.
COPY clients/python clients/python
COPY clients/js/page_client.py clients/js/
COPY pyproject.toml constraints.lock LICENSE ./
# Every file is compared with its hash in the lock: that of uv by pip, all others by uv.
RUN sed -n '/^uv==/,/[^\\]$/p' constraints.lock >/tmp/uv.lock \
    && pip install --require-hashes --requirement /tmp/uv.lock \
    && mkdir --parents tutti_server deploy/release && touch deploy/release/README.md \
    && uv pip install --system --constraint constraints.lock ./clients/python ".${EXTRAS:+[$EXTRAS]}" \
    && pip uninstall --yes uv

COPY clients/js/src clients/js/src
COPY app app
COPY cluster cluster
COPY engine engine
COPY plugins plugins
COPY tutti_server tutti_server
RUN pip install --no-deps --force-reinstall .

USER tutti
WORKDIR /home/tutti
# Reachable from outside the container, so the service asks for TUTTI_API_KEYS.
ENV TUTTI_HOST=0.0.0.0 TUTTI_PORT=8000
# With the models of the hub and what FlashInfer compiles, so that one volume keeps all that a start need not do again.
ENV TRITON_CACHE_DIR=/home/tutti/.cache/triton
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["tutti"]
CMD ["serve"]
