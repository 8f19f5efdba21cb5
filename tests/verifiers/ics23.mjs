// The verdicts of @confio/ics23 on proofs, in the order in which they are given on standard input.
import ics23 from "@confio/ics23";

const SPECS = { iavl: ics23.iavlSpec, tendermint: ics23.tendermintSpec };

function verdict({ spec, root, key, value, proof }) {
  const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
  const message = ics23.ics23.CommitmentProof.decode(bytes(proof));
  return value === null
    ? ics23.verifyNonMembership(message, SPECS[spec], bytes(root), bytes(key))
    : ics23.verifyMembership(message, SPECS[spec], bytes(root), bytes(key), bytes(value));
}

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const claims = JSON.parse(Buffer.concat(chunks).toString());
process.stdout.write(JSON.stringify(claims.map(verdict)));
