// The command line of a host:
//
//   node HOST.mjs --guest FILE [--env NAME=VALUE]... [--test-mode]
//
// A host prints its address, and ends when standard input closes.

import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    guest: { type: "string" },
    env: { type: "string", multiple: true, default: [] },
    "test-mode": { type: "boolean", default: false },
  },
});

/** The file of the guest, in conformance/guests/edge. */
export const { guest } = values;

/** The guest's environment variables. */
export const env = {
  ...Object.fromEntries(values.env.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)])),
  TIDEGATE_TEST_MODE: values["test-mode"] ? (process.env.TIDEGATE_SUITE_KEY ?? "on") : "off",
};
