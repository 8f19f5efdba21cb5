// Reads { roots: [{ entries: [[key, value]], version }], proofs: [{ root, nodes }], created: [{ nodes, updates }] }, all
// bytes as hexadecimal strings with 0x, and prints what the WASM build of the deployed trie says of each.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const executor = createRequire(import.meta.url)("@acala-network/chopsticks-executor");
const asked = JSON.parse(readFileSync(0, "utf8"));

async function answer(work) {
  try {
    return { ok: await work() };
  } catch (error) {
    return { refused: String(error) };
  }
}

const answers = { roots: [], proofs: [], created: [] };
for (const { entries, version } of asked.roots ?? []) {
  answers.roots.push(await answer(() => executor.calculate_state_root(entries, version)));
}
for (const { root, nodes } of asked.proofs ?? []) {
  answers.proofs.push(await answer(() => executor.decode_proof(root, nodes)));
}
for (const { nodes, updates } of asked.created ?? []) {
  answers.created.push(await answer(() => executor.create_proof(nodes, updates)));
}
console.log(JSON.stringify(answers));
