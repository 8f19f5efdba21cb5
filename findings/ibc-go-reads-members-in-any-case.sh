#!/usr/bin/env bash
# ibc-go 10.7.0 (Go): the members of a token packet are read in any case, and of two the last one counts.
#
# A packet of ICS-20 version 1 is JSON. Since release 9 it is read with encoding/json, which matches the names of members
# without regard to case; release 8 and ibc-rs ask for the names as they are written. So "AMOUNT" is an amount, and where
# "amount" stands beside it, whichever comes last. Who indexes packets with a reader of JSON that asks for exact names
# does not find what the chain has found. A member of any other name is refused.
#
# Seen: AMOUNT alone: 5; amount 5 and then AMOUNT 7: 7; AMOUNT 7 and then amount 5: 5; a member "other": refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod <<'MOD'
module finding

go 1.25

require (
	github.com/bytedance/sonic v1.15.5 // the release that the SDK asks for does not build with Go 1.26
	github.com/cosmos/ibc-go/v10 v10.7.0
)

replace github.com/syndtr/goleveldb => github.com/syndtr/goleveldb v1.0.1-0.20210819022825-2ae1ddf74ef7
MOD
cat > main.go <<'GO'
package main

import (
	"fmt"

	"github.com/cosmos/ibc-go/v10/modules/apps/transfer/types"
)

func main() {
	for _, amounts := range []string{
		`"AMOUNT":"5"`, `"amount":"5","AMOUNT":"7"`, `"AMOUNT":"7","amount":"5"`, `"amount":"5","other":""`,
	} {
		packet := `{"denom":"uatom",` + amounts + `,"sender":"a","receiver":"b"}`
		found, err := types.UnmarshalPacketData([]byte(packet), types.V1, types.EncodingJSON)
		if err != nil {
			fmt.Println(amounts, "refused")
			continue
		}
		fmt.Println(amounts, found.Token.Amount)
	}
}
GO
go mod tidy
go build -o finding .
seen=$(./finding)
echo "$seen"
expected='"AMOUNT":"5" 5
"amount":"5","AMOUNT":"7" 7
"AMOUNT":"7","amount":"5" 5
"amount":"5","other":"" refused'
[ "$seen" = "$expected" ] || { echo "changed" >&2; exit 1; }
