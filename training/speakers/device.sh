#!/bin/bash
# device.sh PACK OUT [options]: one call on a training machine, in the root of the repository. PACK holds synthesisers.tar.xz or .gz
# (training/pack.sh). The options are those of training.speakers.train.
set -euo pipefail
pack=$1 out=$2
shift 2
run=${RUN:-/dev/shm/tutti-speakers}
mkdir -p "$run/root" "$run/bank" "$out"
tar -C "$run/root" -xf "$pack"/synthesisers.tar.*z
export PYTHONUNBUFFERED=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
python3 -m training.speakers.train --root "$run/root" --bank "$run/bank" --out "$out" "$@" 2>&1 | tee "$out/train.log"
