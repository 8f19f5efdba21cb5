#!/usr/bin/env bash
# cosmossdk.io/math 1.5.3 (Go): NewIntFromString reads literals of Go, so "010" is 8.
#
# It is what ibc-go 8 to 10 reads the amount of a token packet with. It hands the text to math/big with base 0, and with
# that come octal, hexadecimal and binary prefixes, and underscores. ibc-rs and cosmjs take decimal digits only, and
# leading zeros for nothing: one packet, two amounts. "08" is refused here, and 8 there.
#
# Seen: 10 is 10, 010 is 8, 0x10 is 16, 0o17 is 15, 1_000 is 1000, 08 is refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"fmt"

	"cosmossdk.io/math"
)

func main() {
	for _, text := range []string{"10", "010", "0x10", "0o17", "1_000", "08"} {
		if found, ok := math.NewIntFromString(text); ok {
			fmt.Print(text, "=", found, " ")
		} else {
			fmt.Print(text, " refused ")
		}
	}
}
GO
go mod init finding
go get cosmossdk.io/math@v1.5.3
go mod tidy
seen=$(go run .)
echo "$seen"
[ "$seen" = "10=10 010=8 0x10=16 0o17=15 1_000=1000 08 refused " ] || { echo "changed" >&2; exit 1; }
