#!/usr/bin/env bash
# Installs the peers of `benchmarks.live_peers`, each into its own environment under build/peers, with all versions pinned:
# `benchmarks/peers.sh` installs all, `benchmarks/peers.sh whisperlive` only one. Each takes 0.5 to 1.5 GB. They run on the
# CPU. If your package index has torch only with CUDA, name an index for CPUs in PIP_INDEX_URL or PIP_EXTRA_INDEX_URL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=(whisperlive whisperlivekit whisper_streaming)

# whisper_streaming is on no package index. Its source is fetched and used unchanged.
STREAMING_URL=https://github.com/ufal/whisper_streaming
STREAMING_COMMIT=7f37945bdb0162307c26119f51bd58dd27eb710a
fetch_whisper_streaming() {
    local source=build/peers/whisper_streaming/source
    [[ ! -e $source/whisper_online_server.py ]] || return 0
    git init --quiet "$source"
    if ! git -C "$source" fetch --quiet --depth 1 "$STREAMING_URL" "$STREAMING_COMMIT"; then
        echo "whisper_streaming: $STREAMING_URL cannot be reached. Put whisper_online.py, whisper_online_server.py and" >&2
        echo "line_packet.py of its commit $STREAMING_COMMIT into $source, and run this again." >&2
        return 1
    fi
    git -C "$source" checkout --quiet FETCH_HEAD
}

for name in "${names[@]}"; do
    environment=build/peers/$name
    "$PYTHON" -m venv "$environment"
    # Without dependencies: WhisperLive's would bring gigabytes of CUDA, and PyAudio, which needs headers. The lists are complete.
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "benchmarks/peer_servers/$name.txt"
    [[ $name != whisper_streaming ]] || fetch_whisper_streaming
    echo "$name: $environment"
done
