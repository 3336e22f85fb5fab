// Makes each panic a trap at once. On this target a panic prints nothing before it traps, so its message and its place in the source
// would be loaded for nobody:
//
//   node traps.mjs MODULE OUT

import { readFileSync, writeFileSync } from "node:fs";
import binaryen from "binaryen";

/** Functions of the standard library that do not return. */
const PANICS =
  /^<?(core|alloc)(\[[0-9a-f]+\])?::(panicking::|.*\b(unwrap_failed|expect_failed|slice_index_fail|slice_error_fail|len_mismatch_fail|assert_failed|panic_already_\w+|raw_vec::handle_error)\b)/;

const [input, out] = process.argv.slice(2);
const module = binaryen.readBinary(readFileSync(input));
let panics = 0;
for (let place = 0; place < module.getNumFunctions(); place++) {
  const found = module.getFunctionByIndex(place);
  const { name, module: isImported } = binaryen.getFunctionInfo(found);
  if (isImported || !PANICS.test(name)) continue;
  binaryen.Function(found).body = module.unreachable();
  panics += 1;
}
if (panics === 0) throw new Error("no panic of the standard library is found, so its names have changed: see PANICS in traps.mjs");

const bytes = Buffer.from(module.emitBinary());
for (let place = 0; place < module.getNumDataSegments(); place++) {
  const { offset, data } = module.getDataSegmentInfo(module.getDataSegmentByIndex(place));
  const start = bytes.indexOf(Buffer.from(data));
  withoutPlaces(bytes.subarray(start, start + data.byteLength), offset);
}
writeFileSync(out, bytes);

/** Zeroes the places in the source that panics name: the address and the length of a file's name, a line and a column. */
function withoutPlaces(data, address) {
  const files = [];
  for (let at = 0; at + 16 <= data.length; at += 4) {
    const [name, length, line, column] = [0, 4, 8, 12].map((word) => data.readUInt32LE(at + word));
    const [from, to] = [name - address, name - address + length];
    if (from < 0 || to > data.length || line === 0 || column === 0 || !data.toString("latin1", from, to).endsWith(".rs")) continue;
    data.fill(0, at, at + 16);
    files.push([from, to]);
  }
  for (const [from, to] of files) data.fill(0, from, to);
}
