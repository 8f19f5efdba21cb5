// Reads a list of {certificate, root_key, canister | subnet, paths} (hex) and writes, for each, whether
// @icp-sdk/core accepts the certificate and what it finds at the paths.
import { readFileSync } from "node:fs";
import { Certificate } from "@icp-sdk/core/agent";
import { Principal } from "@icp-sdk/core/principal";

const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (data) => Buffer.from(data).toString("hex");

async function check({ certificate, root_key, canister, subnet, paths }) {
  const principal =
    subnet === undefined
      ? { canisterId: Principal.fromUint8Array(bytes(canister)) }
      : { subnetId: Principal.fromUint8Array(bytes(subnet)) };
  try {
    const accepted = await Certificate.create({
      certificate: bytes(certificate),
      rootKey: bytes(root_key),
      principal,
      disableTimeVerification: true,
    });
    const lookups = paths.map((path) => {
      const found = accepted.lookup_path(path.map(bytes));
      return { status: found.status.toLowerCase(), value: found.value ? hex(found.value) : "" };
    });
    return { accepted: true, lookups };
  } catch (error) {
    return { accepted: false, error: String(error.message ?? error) };
  }
}

const answers = [];
for (const request of JSON.parse(readFileSync(0, "utf8"))) {
  answers.push(await check(request));
}
console.log(JSON.stringify(answers));
