#!/usr/bin/env bash
# CometBFT 0.38.21 (Go, package light): trust level 1 is valid, and no header that skips a height meets it.
#
# The level says how much of the trusted voting power has to have signed a header that does not follow the trusted one:
# *more* than that share. 1/1 passes ValidateTrustLevel (and tendermint-light-client-verifier 0.40.4 takes it, too), so
# that a client set to "all of them" looks like a strict one. Since nobody can sign with more than all of the power, it
# verifies height by height, and answers "can't be trusted" to every other header, also where each validator signed.
#
# Seen, of a header 6 heights later that both of two trusted validators signed:
# level 1/1 is valid; at 2/3: verified; at 1/1: "can't trust new val set".
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"

# The trusted header and its next validators, the new header and its validators, in protobuf.
trusted=CsACCgIICxIGem9uZS0xGAMiBgiD4s+qBioCEgAyIOOwxEKY/BwUmvv0yJlvuSQnrkHkZJuTTKSVmRt4UrhVOiDjsMRCmPwcFJr79MiZb7kkJ65B5GSbk0yklZkbeFK4VUIgqvhgJUwrgTMfjkDWAzFbMgxaZH9uK6i/j7e8lsvgg8pKIOtiX8DPbmTwu3DKmK9rdASSrPNcuic5NeqX9liKsKmRUiAEgJG8fdwoP3e/v5HXPETaWMPfipy8hnQF2Lfz2q2iL1ogAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABiIOOwxEKY/BwUmvv0yJlvuSQnrkHkZJuTTKSVmRt4UrhVaiDjsMRCmPwcFJr79MiZb7kkJ65B5GSbk0yklZkbeFK4VXIUk5k/LnPGMcqt06vsTia2MbhCtZgSsAEIAxpICiDdGMRpNXk2Tnnlz4ykKSFJ6LlaBKVWJEQryHPx7emHyxIkCAESINjlwb6VoS1lBNSpGAacswrnLnueQszGR5VfxUl4ZvWzImIIAhIUk5k/LnPGMcqt06vsTia2MbhCtZgaBgiD4s+qBiJApMXXav75f+mJ9dKr28RpHej50A1aV/hp+KGbMh/xzha+UXfzn2AypHk+JtIKlmEipQMDHSFawxZnnf6uOnDFBA==
following=CjwKFCrcqIRkvThW/4P0DgmsVszlInLBEiIKIEv+Q0h8BBLANwJJU5KrCVMWn6Iwh2+4WpkRm9jGMNBpGAEKPAoUk5k/LnPGMcqt06vsTia2MbhCtZgSIgog6CAsgPsz3FCH075AHhaL8pZ5PszSBSu46TlbDGHU2mgYARI8ChQq3KiEZL04Vv+D9A4JrFbM5SJywRIiCiBL/kNIfAQSwDcCSVOSqwlTFp+iMIdvuFqZEZvYxjDQaRgBGAI=
header=CoYDCgIICxIGem9uZS0xGAkiBgiJ4s+qBipICiDdGMRpNXk2Tnnlz4ykKSFJ6LlaBKVWJEQryHPx7emHyxIkCAESINjlwb6VoS1lBNSpGAacswrnLnueQszGR5VfxUl4ZvWzMiA8tJmLjwb9U3GzsVgSgX4dVT6xUUtYsdz0MFYzilLtvTog47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFVCIOtiX8DPbmTwu3DKmK9rdASSrPNcuic5NeqX9liKsKmRSiDrYl/Az25k8Ltwypiva3QEkqzzXLonOTXql/ZYirCpkVIgBICRvH3cKD93v7+R1zxE2ljD34qcvIZ0Bdi389qtoi9aIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHYiDjsMRCmPwcFJr79MiZb7kkJ65B5GSbk0yklZkbeFK4VWog47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFVyFJOZPy5zxjHKrdOr7E4mtjG4QrWYEpQCCAkaSAogC8zqgqKqj+2abqL/WMFJW/tcn+nQYGrEUHME4tl36LwSJAgBEiBWFmxu0MUYADlCen6yfj/N7jNPXDiQByfDxia8UCeMKSJiCAISFCrcqIRkvThW/4P0DgmsVszlInLBGgYIieLPqgYiQI8nI1FHBhhIDs/ZQNSk6PqGTKZUdVeehMg/8UXBuV0n6AvFTQXne3qDwZHPOnvTS3R/BFU965TxQOl43v2Y3A4iYggCEhSTmT8uc8Yxyq3Tq+xOJrYxuEK1mBoGCIniz6oGIkDZlyCox3dpkmOq7G02sTOjV6aay57SXf1xeCle18S/sbdc0QEFjmAlPsFzNgh/NTdMlL6dvyLpmzMJofhcff0N
validators=CjwKFCrcqIRkvThW/4P0DgmsVszlInLBEiIKIEv+Q0h8BBLANwJJU5KrCVMWn6Iwh2+4WpkRm9jGMNBpGAEKPAoUk5k/LnPGMcqt06vsTia2MbhCtZgSIgog6CAsgPsz3FCH075AHhaL8pZ5PszSBSu46TlbDGHU2mgYARI8ChQq3KiEZL04Vv+D9A4JrFbM5SJywRIiCiBL/kNIfAQSwDcCSVOSqwlTFp+iMIdvuFqZEZvYxjDQaRgBGAI=

cat > main.go <<'GO'
package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cometbft/cometbft/libs/math"
	"github.com/cometbft/cometbft/light"
	"github.com/cometbft/cometbft/proto/tendermint/types"
	cmt "github.com/cometbft/cometbft/types"
)

func bytes(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}

func header(text string) *cmt.SignedHeader {
	var message types.SignedHeader
	if err := message.Unmarshal(bytes(text)); err != nil {
		panic(err)
	}
	found, err := cmt.SignedHeaderFromProto(&message)
	if err != nil {
		panic(err)
	}
	return found
}

func set(text string) *cmt.ValidatorSet {
	var message types.ValidatorSet
	if err := message.Unmarshal(bytes(text)); err != nil {
		panic(err)
	}
	found, err := cmt.ValidatorSetFromProto(&message)
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	trusted, following, next, validators := header(os.Args[1]), set(os.Args[2]), header(os.Args[3]), set(os.Args[4])
	fmt.Println("level 1/1 is valid:", light.ValidateTrustLevel(math.Fraction{Numerator: 1, Denominator: 1}) == nil)
	for _, level := range []math.Fraction{{Numerator: 2, Denominator: 3}, {Numerator: 1, Denominator: 1}} {
		err := light.Verify(trusted, following, next, validators, time.Hour, trusted.Time.Add(time.Minute), time.Second, level)
		var refused light.ErrNewValSetCantBeTrusted
		fmt.Println("at", level, "verified:", err == nil, "can't be trusted:", errors.As(err, &refused))
	}
}
GO
go mod init finding
go get github.com/cometbft/cometbft@v0.38.21
go mod tidy
go build -o finding .
seen=$(./finding "$trusted" "$following" "$header" "$validators")
echo "$seen"
expected="level 1/1 is valid: true
at 2/3 verified: true can't be trusted: false
at 1/1 verified: false can't be trusted: true"
[ "$seen" = "$expected" ] || { echo "changed" >&2; exit 1; }
