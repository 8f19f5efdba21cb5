// Does one kind of work with other people's packages whenever it is told to, and says how long that took. The first line
// of standard input is {kind, work}; the answer to it is {ready: true}. Each further line means: once more; the answer is
// {seconds, processor}, or {refused} when something was not accepted. Before it is ready it has done the work for a
// second, so that what is compiled while it runs has been.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));

const WARM_UP = 1000;
const NOT_ACCEPTED = "it was not accepted";

const KINDS = {
  async ics23({ spec, root, claims }) {
    const { default: ics23 } = await import("@confio/ics23");
    const specs = { iavl: ics23.iavlSpec, tendermint: ics23.tendermintSpec };
    const read = claims.map((claim) => claim.map(bytes));
    const trusted = bytes(root);
    return () =>
      read.every(([key, value, proof]) => {
        const message = ics23.ics23.CommitmentProof.decode(proof);
        return ics23.verifyMembership(message, specs[spec], trusted, key, value);
      });
  },
  async certificate({ certificate, root_key, canister, times }) {
    const { Certificate } = await import("@icp-sdk/core/agent");
    const { Principal } = await import("@icp-sdk/core/principal");
    const request = {
      certificate: bytes(certificate),
      rootKey: bytes(root_key),
      principal: { canisterId: Principal.fromUint8Array(bytes(canister)) },
      disableTimeVerification: true,
    };
    return async () => {
      for (let time = 0; time < times; time++) await Certificate.create(request);
      return true;
    };
  },
  async trie_root({ entries, version, root }) {
    const executor = createRequire(import.meta.url)("@acala-network/chopsticks-executor");
    return async () => (await executor.calculate_state_root(entries, version)) === root;
  },
  async trie_proofs({ root, proofs }) {
    const executor = createRequire(import.meta.url)("@acala-network/chopsticks-executor");
    return async () => {
      for (const { nodes, key, value } of proofs) {
        const found = new Map(await executor.decode_proof(root, nodes));
        if (found.get(key) !== value) return false;
      }
      return true;
    };
  },
};

let once = null;
for await (const line of createInterface({ input: process.stdin })) {
  let answer, good;
  try {
    if (once === null) {
      const { kind, work } = JSON.parse(line);
      once = await KINDS[kind](work);
      const begun = performance.now();
      do good = await once();
      while (good && performance.now() - begun < WARM_UP);
      answer = good ? { ready: true } : { refused: NOT_ACCEPTED };
    } else {
      const before = process.cpuUsage();
      const begun = performance.now();
      good = await once();
      const seconds = (performance.now() - begun) / 1e3;
      const used = process.cpuUsage(before);
      answer = good ? { seconds, processor: (used.user + used.system) / 1e6 } : { refused: NOT_ACCEPTED };
    }
  } catch (error) {
    answer = { refused: String(error?.message ?? error) };
  }
  console.log(JSON.stringify(answer));
}
