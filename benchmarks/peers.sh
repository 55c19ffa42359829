#!/usr/bin/env bash
# Installs the peers of `benchmarks.live_peers`, each into an environment of its own under build/peers, with all versions
# pinned: `benchmarks/peers.sh`, or only some: `benchmarks/peers.sh whisperlive`. About 1.5 GB each. They run on the CPU;
# where the package index has torch only with CUDA, name one for CPUs in PIP_INDEX_URL or PIP_EXTRA_INDEX_URL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=(whisperlive whisperlivekit)

for name in "${names[@]}"; do
    environment=build/peers/$name
    "$PYTHON" -m venv "$environment"
    # Without dependencies: WhisperLive's would bring gigabytes of CUDA and PyAudio, which needs headers. The lists are whole.
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "benchmarks/peer_servers/$name.txt"
    echo "$name: $environment"
done
