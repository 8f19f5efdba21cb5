// Decodes and verifies ICS-23 existence proofs with cosmos/ics23 as often as it is told to, and says how long that took.
//
// The first argument names a file of records, a length (4 bytes, little-endian) and that many bytes each: the name of the
// spec, the root, then key, value and proof of every claim. The second says how often all of them are verified a time.
// Each line of standard input means: once more; the answer is the seconds it took by the clock and of the processor, or
// "refused" when a claim was not accepted.
//
// With "verdicts" in its place, every claim has five records: spec, root, key, value (empty: absent) and proof; a line
// each says true, false, or that the verifier stopped.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	ics23 "github.com/cosmos/ics23/go"
)

var specs = map[string]*ics23.ProofSpec{
	"iavl":       ics23.IavlSpec,
	"tendermint": ics23.TendermintSpec,
	"smt":        ics23.SmtSpec,
}

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	if os.Args[2] == "verdicts" {
		read := records(data)
		for at := 0; at < len(read); at += 5 {
			fmt.Println(verdict(read[at : at+5]))
		}
		return
	}
	times, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	read := records(data)
	spec, root, claims := specs[string(read[0])], read[1], read[2:]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		begun, used := time.Now(), processorSeconds()
		if good(spec, root, claims, times) {
			fmt.Println(time.Since(begun).Seconds(), processorSeconds()-used)
		} else {
			fmt.Println("refused")
		}
	}
}

func good(spec *ics23.ProofSpec, root []byte, claims [][]byte, times int) bool {
	for time := 0; time < times; time++ {
		for claim := 0; claim < len(claims); claim += 3 {
			var proof ics23.CommitmentProof
			if proof.Unmarshal(claims[claim+2]) != nil {
				return false
			}
			if !ics23.VerifyMembership(spec, root, &proof, claims[claim], claims[claim+1]) {
				return false
			}
		}
	}
	return true
}

func verdict(claim [][]byte) (said string) {
	defer func() {
		if recover() != nil {
			said = "stopped"
		}
	}()
	var proof ics23.CommitmentProof
	if proof.Unmarshal(claim[4]) != nil {
		return "false"
	}
	spec := specs[string(claim[0])]
	if len(claim[3]) == 0 {
		return strconv.FormatBool(ics23.VerifyNonMembership(spec, claim[1], &proof, claim[2]))
	}
	return strconv.FormatBool(ics23.VerifyMembership(spec, claim[1], &proof, claim[2], claim[3]))
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

func processorSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
