// Tells how libraries in JavaScript read texts: a JSON object of lists on standard input, an object of lists by library
// on standard output; null where a text is refused.
import { coin } from "@cosmjs/amino";
import { Principal } from "@icp-sdk/core/principal";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const relayer = createRequire(import.meta.url)("@confio/relayer/build/lib/utils.js");
const given = JSON.parse(readFileSync(0, "utf8"));

function read(texts, reader) {
  return texts.map((text) => {
    try {
      return reader(text);
    } catch {
      return null;
    }
  });
}

function timeout(text) {
  const height = relayer.parseHeightAttribute(text);
  return height === undefined ? [] : [height.revisionNumber.toString(), height.revisionHeight.toString()];
}

const attributes = (event, named) => ({
  type: event,
  attributes: Object.entries(named).map(([key, value]) => ({ key, value })),
});

const readings = {
  coin: read(given.amounts, (text) => coin(text, "uatom").amount),
  BigInt: read(given.amounts, (text) => BigInt(text).toString()),
  timeout: read(given.heights, timeout),
  principal: read(given.principals, (text) => Principal.fromText(text).toHex().toLowerCase()),
  packet: read(given.events, (named) =>
    Buffer.from(relayer.parsePacketsFromEvents([attributes("send_packet", named)])[0].data).toString("hex"),
  ),
  acknowledgement: read(given.events, (named) =>
    Buffer.from(relayer.parseAcksFromTxEvents([attributes("write_acknowledgement", named)])[0].acknowledgement).toString("hex"),
  ),
};
console.log(JSON.stringify(readings));
