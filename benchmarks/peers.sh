#!/usr/bin/env bash
# Installs the peers of `benchmarks.live_peers`, each into its own environment under build/peers, with all versions pinned.
# WhisperLive takes about 1 GB. It runs on the CPU. If your package index has torch only with CUDA, name an index for CPUs
# in PIP_INDEX_URL or PIP_EXTRA_INDEX_URL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
for name in "${@:-whisperlive}"; do
    environment=build/peers/$name
    "$PYTHON" -m venv "$environment"
    # Without dependencies: WhisperLive's would bring gigabytes of CUDA, and PyAudio, which needs headers. The list is complete.
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "benchmarks/peer_servers/$name.txt"
    echo "$name: $environment"
done
