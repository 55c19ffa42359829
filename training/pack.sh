#!/bin/bash
# pack.sh SYNTHESISERS TEXT TOKENIZER OUT: what the training machine needs besides the repository, as one small folder.
set -euo pipefail
synthesisers=$1 text=$2 tokenizer=$3 out=$4
mkdir -p "$out"
tar -C "$synthesisers" -cf - usr | xz -T1 -8 > "$out/synthesisers.tar.xz"
cut -f2 "$text/train.tsv" | LC_ALL=C sort | xz -T1 -8 > "$out/train.tsv.xz"
cut -f2 "$text/test.tsv" | xz -T1 -8 > "$out/test.tsv.xz"
cp "$tokenizer/tokenizer.json" "$out/"
du -sh "$out"
