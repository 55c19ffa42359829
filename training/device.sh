#!/bin/bash
# device.sh SECONDS [TRAINING_SECONDS] [options]: one call on a training machine, in the root of the repository, of
# training.train or, with MODULE=prompting, of training.prompting.
#
# Starts the synthesis and the training unless they are running. Both continue between the calls of one schedule. Shortly
# before SECONDS are over it requests a snapshot and copies it to $OUT. Files for later calls stay in memory (RUN). A new
# machine continues from training/pack/resume/train.json and the embedded weights.
set -uo pipefail
seconds=$1 training_seconds=${2:-1440}
shift $(($# < 2 ? $# : 2))
began=$SECONDS
run=${RUN:-/dev/shm/tutti} pack=training/pack snapshot_s=${SNAPSHOT_S:-40}
export OUT=${OUT:?} PYTHONUNBUFFERED=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True TORCHINDUCTOR_CACHE_DIR=$run/inductor TOKENIZERS_PARALLELISM=false
mkdir -p "$run"/{chunks,tests,state,out,root} "$OUT"

# A zombie process is not alive.
alive() { [ -f "$run/$1.pid" ] && grep -qs '^State:.*[RSDT] ' "/proc/$(cat "$run/$1.pid")/status"; }

if [ ! -f "$run/unpacked" ]; then
    tar -C "$run/root" -xJf $pack/synthesisers.tar.xz && cp $pack/{train.tsv.xz,test.tsv.xz,tokenizer.json} "$run/" &&
        touch "$run/unpacked" || exit 1
    [ -f $pack/inductor.tar.xz ] && tar -C "$run" -xJf $pack/inductor.tar.xz
    echo "unpacked after $((SECONDS - began)) s, $(nproc) cores"
fi
echo "$training_seconds" >"$run/state/seconds"
if ! alive speech && [ ! -f "$run/state/finished" ] && [ ! -f "$run/chunks/full" ]; then
    LD_LIBRARY_PATH=$run/root/usr/lib/x86_64-linux-gnu OMP_NUM_THREADS=1 setsid python3 -m training.speech \
        --root "$run/root" --text "$run/train.tsv.xz" --tokenizer "$run/tokenizer.json" --out "$run/chunks" \
        --workers "${WORKERS:-14}" --seconds "$training_seconds" --seed "$RANDOM" \
        --test-text "$run/test.tsv.xz" --test-out "$run/tests" >>"$run/speech.log" 2>&1 &
    echo $! >"$run/speech.pid"
fi
if ! alive train && [ ! -f "$run/state/finished" ]; then
    setsid python3 -m "training.${MODULE:-train}" --bank "$run/chunks" --tokenizer "$run/tokenizer.json" --state "$run/state" \
        --out "$run/out" --tests "$run/tests" --seconds "$training_seconds" \
        --weights engine/assets/tutti-demo/model.safetensors --history $pack/resume/train.json "$@" >>"$run/train.log" 2>&1 &
    echo $! >"$run/train.pid"
fi

failed=0 asked=0
while alive train; do
    if [ $asked = 0 ] && [ $((SECONDS - began)) -ge $((seconds - snapshot_s)) ]; then
        rm -f "$run/state/snapshot.done"
        touch "$run/state/snapshot"
        asked=1
    fi
    [ $asked = 1 ] && [ -f "$run/state/snapshot.done" ] && break
    [ $((SECONDS - began)) -ge $((seconds - 5)) ] && echo "no snapshot in time" && break
    sleep 1
done
if ! alive train && [ ! -f "$run/state/finished" ]; then
    echo "the training ended early"
    failed=1
    kill "$(cat "$run/speech.pid")" 2>/dev/null
fi
cp "$run"/out/* "$run/train.log" "$OUT/" 2>/dev/null
chmod a+r "$OUT"/*
tail -n 200 "$run/speech.log" >"$OUT/speech.log"
tail -n 3 "$run/speech.log"
grep -v '^    ' "$run/train.log" | tail -n 40
nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader 2>/dev/null
free -g | sed -n 2p
uptime
[ -f "$run/state/finished" ] && echo "FINISHED"
exit $failed
