// What CometBFT's light client says of updates to a header, a line each.
//
// The argument names a file of records, a length (4 bytes, little-endian) and that many bytes each. Nine are an update:
// the trusted signed header and the validators that it names as the next, the new signed header and its validators (all
// protobuf); the time, the trusting period and the clock drift in nanoseconds, and the trust level as numerator and
// denominator (8 bytes each).
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cometbft/cometbft/libs/math"
	"github.com/cometbft/cometbft/light"
	"github.com/cometbft/cometbft/proto/tendermint/types"
	cmt "github.com/cometbft/cometbft/types"
)

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	read := records(data)
	for at := 0; at < len(read); at += 9 {
		fmt.Println(verdict(read[at : at+9]))
	}
}

func verdict(claim [][]byte) (said string) {
	defer func() {
		if recover() != nil {
			said = "stopped"
		}
	}()
	trusted, trustedNext, err := block(claim[0], claim[1])
	if err != nil {
		return "false"
	}
	untrusted, validators, err := block(claim[2], claim[3])
	if err != nil {
		return "false"
	}
	number := func(place int) int64 { return int64(binary.LittleEndian.Uint64(claim[place])) }
	now := time.Unix(0, number(4))
	level := math.Fraction{Numerator: uint64(number(7)), Denominator: uint64(number(8))}
	err = light.Verify(trusted, trustedNext, untrusted, validators, time.Duration(number(5)), now, time.Duration(number(6)), level)
	var unknown light.ErrNewValSetCantBeTrusted
	var expired light.ErrOldHeaderExpired
	switch {
	case err == nil:
		return "true"
	case errors.As(err, &unknown):
		return "unknown"
	case errors.As(err, &expired):
		return "expired"
	}
	return "false"
}

func block(header, set []byte) (*cmt.SignedHeader, *cmt.ValidatorSet, error) {
	var signed types.SignedHeader
	var listed types.ValidatorSet
	if err := signed.Unmarshal(header); err != nil {
		return nil, nil, err
	}
	if err := listed.Unmarshal(set); err != nil {
		return nil, nil, err
	}
	h, err := cmt.SignedHeaderFromProto(&signed)
	if err != nil {
		return nil, nil, err
	}
	v, err := cmt.ValidatorSetFromProto(&listed)
	return h, v, err
}

func records(data []byte) [][]byte {
	var found [][]byte
	for at := 0; at < len(data); {
		length := int(binary.LittleEndian.Uint32(data[at:]))
		found = append(found, data[at+4:at+4+length])
		at += 4 + length
	}
	return found
}
