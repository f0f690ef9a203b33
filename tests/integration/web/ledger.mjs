// Messages, records and certificates in another language, from their description alone. Reads the vectors on stdin and
// prints the notes of those that come out otherwise here, as JSON.

import { createHash } from "node:crypto";

const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();

function uint16(number) {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(number);
  return bytes;
}

function prefixed(text) {
  const bytes = Buffer.from(text, "utf8");
  return Buffer.concat([uint16(bytes.length), bytes]);
}

function record({ ballot, accepted_at, option }) {
  const rank = Buffer.alloc(8);
  rank.writeBigUInt64BE(BigInt(accepted_at) * 1024n + BigInt(option));
  return Buffer.concat([Buffer.from(ballot, "hex"), rank]);
}

// RFC 9162, section 2.1.1: the left part is the largest power of two below the number of leaves.
function root(leaves) {
  if (leaves.length === 0) return sha256();
  if (leaves.length === 1) return sha256(Buffer.from([0]), leaves[0]);
  let split = 1;
  while (split * 2 < leaves.length) split *= 2;
  return sha256(Buffer.from([1]), root(leaves.slice(0, split)), root(leaves.slice(split)));
}

// RFC 9162, section 2.1.3.1.
function path(index, leaves) {
  if (leaves.length <= 1) return [];
  let split = 1;
  while (split * 2 < leaves.length) split *= 2;
  const [left, right] = [leaves.slice(0, split), leaves.slice(split)];
  return index < split ? [...path(index, left), root(right)] : [...path(index - split, right), root(left)];
}

function message(votes) {
  const groups = new Map();
  for (const { poll, option, ballot, accepted_at } of votes) {
    if (!groups.has(poll)) groups.set(poll, { poll, options: [], ballots: [], choices: [], accepted_at: [] });
    const group = groups.get(poll);
    if (!group.options.includes(option)) group.options.push(option);
    group.choices.push(group.options.indexOf(option));
    group.ballots.push(Buffer.from(ballot, "hex"));
    group.accepted_at.push(accepted_at);
  }
  const columns = [...groups.values()].map((group) => ({
    ...group,
    ballots: Buffer.concat(group.ballots).toString("base64"),
  }));
  return JSON.stringify({ v: 1, groups: columns });
}

function certificateDiffers({ poll, options, records, sha256: hash, root: top, paths }) {
  const sorted = [...records].sort((one, other) => (one.ballot < other.ballot ? -1 : 1));
  const leaves = sorted.map(record);
  const header = [Buffer.from("tally-certificate/1"), prefixed(poll), uint16(options.length), ...options.map(prefixed)];
  const made = leaves.map((_, index) => path(index, leaves).map((step) => step.toString("hex")));
  return (
    sha256(...header, ...leaves).toString("hex") !== hash ||
    root(leaves).toString("hex") !== top ||
    JSON.stringify(made) !== JSON.stringify(paths)
  );
}

let input = "";
for await (const chunk of process.stdin) input += chunk;
const { messages, records, certificates } = JSON.parse(input);
const wrong = [
  ...messages.filter((vector) => message(vector.votes) !== vector.data),
  ...records.filter((vector) => record(vector).toString("hex") !== vector.packed),
  ...certificates.filter(certificateDiffers),
];
console.log(JSON.stringify(wrong.map((vector) => vector.note)));
