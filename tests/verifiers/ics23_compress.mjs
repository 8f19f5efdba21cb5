// Batches as @confio/ics23 makes and compresses them, of lists of proofs given on standard input.
import ics23 from "@confio/ics23";
import compression from "@confio/ics23/build/compress.js";

const { CommitmentProof } = ics23.ics23;

function batch(proofs) {
  const entries = proofs.map((hex) => {
    const { exist, nonexist } = CommitmentProof.decode(Uint8Array.from(Buffer.from(hex, "hex")));
    return exist ? { exist } : { nonexist };
  });
  const compressed = compression.compress(CommitmentProof.create({ batch: { entries } }));
  return Buffer.from(CommitmentProof.encode(compressed).finish()).toString("hex");
}

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
process.stdout.write(JSON.stringify(JSON.parse(Buffer.concat(chunks).toString()).map(batch)));
