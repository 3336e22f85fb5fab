// The command line of a host:
//
//   node HOST.mjs --guest FILE [--env NAME[=VALUE]]... [--test-mode]
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

/** The guest's environment variables. Without a value, one has that of the host. */
export const env = {
  ...Object.fromEntries(values.env.map(variable)),
  TIDEGATE_TEST_MODE: values["test-mode"] ? (process.env.TIDEGATE_SUITE_KEY ?? "on") : "off",
};

/**
 * How many connections may wait until the host accepts them. A burst opens one for each of its requests, and what a host's queue has no
 * room for tries again a second later.
 */
export const backlog = 4_096;

function variable(text) {
  const at = text.indexOf("=");
  return at < 0 ? [text, process.env[text] ?? ""] : [text.slice(0, at), text.slice(at + 1)];
}
