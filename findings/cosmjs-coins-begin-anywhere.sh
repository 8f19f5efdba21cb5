#!/usr/bin/env bash
# @cosmjs/proto-signing 0.39.0 (npm): parseCoins ends the amount at the first character that is no decimal digit.
#
# Whatever follows is the denomination, and denominations may begin with letters and go on with digits. So an amount in
# hexadecimal or with an exponent is no error: it is a small amount of a token that nobody has. A fee or a transfer
# written so is valid, signed, and refused by the chain at best.
#
# Seen: "0x10uatom" is 0 of x10uatom, "1e3uatom" is 1 of e3uatom, "1_000uatom" is refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --loglevel=error --no-audit --no-fund --ignore-scripts @cosmjs/proto-signing@0.39.0 >/dev/null
cat > coins.mjs <<'JS'
import { parseCoins } from "@cosmjs/proto-signing";
for (const text of ["0x10uatom", "1e3uatom", "1_000uatom"]) {
  try {
    const [{ amount, denom }] = parseCoins(text);
    console.log(text, "is", amount, "of", denom);
  } catch {
    console.log(text, "is refused");
  }
}
JS
seen=$(node coins.mjs)
echo "$seen"
expected="0x10uatom is 0 of x10uatom
1e3uatom is 1 of e3uatom
1_000uatom is refused"
[ "$seen" = "$expected" ] || { echo "changed" >&2; exit 1; }
