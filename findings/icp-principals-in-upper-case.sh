#!/usr/bin/env bash
# @icp-sdk/core 6.1.0 (npm) and ic_principal 0.1.5 (Rust): an id in upper case is an id in Rust only.
#
# The text of a principal is base32 with a checksum, in groups of five, and written in lower case. Rust's library reads
# any case, as the specification of base32 suggests. JavaScript's lowers the letters to decode them, encodes what it has
# read again and compares that with the text as given, so that the error is that the *checksum* is wrong.
#
# Seen, of rwlgt-iiaaa-aaaaa-aaaaa-cai in upper case: Rust reads the same id as in lower case; JavaScript says that it
# does not have a valid checksum.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/rust/src"
cd "$folder"
npm install --loglevel=error --no-audit --no-fund --ignore-scripts @icp-sdk/core@6.1.0 >/dev/null
cat > principal.mjs <<'JS'
import { Principal } from "@icp-sdk/core/principal";
for (const text of process.argv.slice(2)) {
  try {
    console.log(Principal.fromText(text).toText());
  } catch (error) {
    console.log(/valid checksum/.test(error.message) ? "no valid checksum" : error.message);
  }
}
JS
cat > rust/Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"

[dependencies]
ic_principal = "=0.1.5"
TOML
cat > rust/src/main.rs <<'RUST'
fn main() {
    for text in std::env::args().skip(1) {
        match ic_principal::Principal::from_text(&text) {
            Ok(found) => println!("{found}"),
            Err(error) => println!("{error}"),
        }
    }
}
RUST
(cd rust && cargo build --quiet)
lower=rwlgt-iiaaa-aaaaa-aaaaa-cai
upper=RWLGT-IIAAA-AAAAA-AAAAA-CAI
seen="Rust: $(echo $(rust/target/debug/finding $lower $upper)); JavaScript: $(echo $(node principal.mjs $lower $upper))"
echo "$seen"
[ "$seen" = "Rust: $lower $lower; JavaScript: $lower no valid checksum" ] || { echo "changed" >&2; exit 1; }
