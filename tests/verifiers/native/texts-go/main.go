// Command texts tells how ibc-go and the libraries under it read and write texts.
//
// It reads a JSON object of lists from standard input and writes an object with the same names: of each text what was
// read, or null where the library refuses it.
package main

import (
	"encoding/hex"
	"encoding/json"
	"log"
	"os"

	sdkmath "cosmossdk.io/math"
	transfer "github.com/cosmos/ibc-go/v10/modules/apps/transfer/types"
	client "github.com/cosmos/ibc-go/v10/modules/core/02-client/types"
)

type texts struct {
	// Packets are denom, amount, sender, receiver and memo each.
	Packets [][5]string `json:"packets"`
	// Payloads are packet data in hexadecimal digits.
	Payloads []string `json:"payloads"`
	Amounts  []string `json:"amounts"`
	Denoms   []string `json:"denoms"`
	Heights  []string `json:"heights"`
}

type denom struct {
	Hops []string `json:"hops"`
	Base string   `json:"base"`
}

type readings struct {
	Packets  []string     `json:"packets"`
	Payloads []*[5]string `json:"payloads"`
	Amounts  []*string    `json:"amounts"`
	Denoms   []*denom     `json:"denoms"`
	Heights  []*[2]uint64 `json:"heights"`
}

func main() {
	var given texts
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		log.Fatal(err)
	}
	var read readings
	for _, each := range given.Packets {
		data := transfer.NewFungibleTokenPacketData(each[0], each[1], each[2], each[3], each[4])
		read.Packets = append(read.Packets, hex.EncodeToString(data.GetBytes()))
	}
	for _, each := range given.Payloads {
		payload, err := hex.DecodeString(each)
		if err != nil {
			log.Fatal(err)
		}
		read.Payloads = append(read.Payloads, packet(payload))
	}
	for _, each := range given.Amounts {
		read.Amounts = append(read.Amounts, amount(each))
	}
	for _, each := range given.Denoms {
		read.Denoms = append(read.Denoms, path(each))
	}
	for _, each := range given.Heights {
		read.Heights = append(read.Heights, height(each))
	}
	if err := json.NewEncoder(os.Stdout).Encode(read); err != nil {
		log.Fatal(err)
	}
}

func packet(payload []byte) *[5]string {
	data, err := transfer.UnmarshalPacketData(payload, transfer.V1, transfer.EncodingJSON)
	if err != nil {
		return nil
	}
	return &[5]string{data.Token.Denom.Path(), data.Token.Amount, data.Sender, data.Receiver, data.Memo}
}

func amount(text string) *string {
	number, ok := sdkmath.NewIntFromString(text)
	if !ok {
		return nil
	}
	digits := number.String()
	return &digits
}

func path(text string) *denom {
	found := transfer.ExtractDenomFromPath(text)
	if found.Validate() != nil {
		return nil
	}
	hops := []string{}
	for _, hop := range found.Trace {
		hops = append(hops, hop.String())
	}
	return &denom{hops, found.Base}
}

func height(text string) *[2]uint64 {
	found, err := client.ParseHeight(text)
	if err != nil {
		return nil
	}
	return &[2]uint64{found.RevisionNumber, found.RevisionHeight}
}
