#!/usr/bin/env bash
# @confio/ics23 0.6.8 (npm): compress() does not share equal steps between the entries of a batch.
#
# A compressed batch keeps its inner steps in a list, and entries name them by index, so that a step that is part of
# several paths is written once. Go's and Rust's encoders look a step up by the content of its encoding; this one uses
# the encoding, a Uint8Array, as the key of a Map, and two arrays with the same bytes are two keys. Every path gets steps
# of its own, and the "compressed" form is longer than the plain one. Who reads such a batch must not take a repeated
# step for a forgery, and who checks that a decompressed and compressed batch is the same bytes will find that it is not.
#
# Seen: two entries with one path of one step: 2 steps in lookupInners, indices 0 and 1; 1 step and index 0 would do.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --loglevel=error --no-audit --no-fund --ignore-scripts @confio/ics23@0.6.8 >/dev/null

cat > compress.cjs <<'JS'
const compression = require("@confio/ics23/build/compress.js");
const leaf = { hash: 1, prehashValue: 1, length: 1, prefix: Buffer.from([0]) };
const path = () => [{ hash: 1, prefix: Buffer.from([1]), suffix: Buffer.alloc(32, 7) }];
const entry = (key) => ({ exist: { key: Buffer.from(key), value: Buffer.from("v"), leaf, path: path() } });
const { compressed } = compression.compress({ batch: { entries: [entry("a"), entry("b")] } });
console.log(compressed.lookupInners.length, JSON.stringify(compressed.entries.map(({ exist }) => exist.path)));
JS
seen=$(node compress.cjs)
echo "steps, paths: $seen"
[ "$seen" = "2 [[0],[1]]" ] || { echo "changed" >&2; exit 1; }
