#!/bin/bash
# synthesisers.sh OUT: Debian's espeak-ng, flite and festival as a relocatable folder (about 20 MB packed).
# They link to sound-card libraries that are never called here; empty stubs replace these.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lib=usr/lib/x86_64-linux-gnu
cd "$work"
apt-get download espeak-ng-data libespeak-ng1 libsonic0 libflite1 festival festlex-cmu festlex-poslex \
    festvox-kallpc16k festvox-kdlpc16k festvox-us-slt-hts libestools2.5 libgomp1 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" all; done
mkdir -p "$out/$lib/espeak-ng-data/lang" "$out/usr/bin" "$out/usr/share"
for name in libflite.so libflite_usenglish.so libflite_cmulex.so libflite_cmu_us_{rms,slt,awb,kal,kal16}.so \
    libespeak-ng.so libsonic.so libest libgomp.so; do
    cp -a "all/$lib/$name"* "$out/$lib/"
done
cd "all/$lib/espeak-ng-data"
cp -a phondata phonindex phontab intonations en_dict voices "$out/$lib/espeak-ng-data/"
cp -a lang/gmw "$out/$lib/espeak-ng-data/lang/"
cd "$work"
rm -rf "$out/$lib/espeak-ng-data/voices/mb"
cp -a all/usr/bin/festival "$out/usr/bin/"
cp -a all/usr/share/festival "$out/usr/share/"
python3 - "$out/$lib" <<'PY'
import collections
import re
import subprocess
import sys

lib = sys.argv[1]
stubs = (
    ("libasound.so.2", "snd_", ["libestbase.so.2.5", "libflite.so.1"]),
    ("libpulse-simple.so.0", "pa_", ["libestbase.so.2.5"]),
    ("libpcaudio.so.0", "(?:create_)?audio_", ["libespeak-ng.so.1"]),
)
for name, prefix, users in stubs:
    by_version = collections.defaultdict(set)
    for user in users:
        symbols = subprocess.run(["readelf", "-Ws", "--dyn-syms", f"{lib}/{user}"], capture_output=True, text=True).stdout
        for symbol, version in re.findall(r"UND (" + prefix + r"\w+)(?:@(\S+))?", symbols):
            by_version[version.strip("@")].add(symbol)
    with open("stub.c", "w") as file:
        file.writelines(f"void *{symbol}(void) {{ return 0; }}\n" for symbol in sorted(set().union(*by_version.values())))
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", f"{lib}/{name}", "stub.c"]
    if any(by_version):
        with open("stub.map", "w") as file:
            for version, symbols in by_version.items():
                if version:
                    file.write(f"{version} {{ global: {' '.join(f'{symbol};' for symbol in symbols)} }};\n")
        command.append("-Wl,--version-script=stub.map")
    subprocess.run(command, check=True)
PY
du -sh "$out"
