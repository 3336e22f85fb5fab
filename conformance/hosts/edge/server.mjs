// The HTTP server of hosts on Node.js.

import { createServer } from "node:http";
import { backlog } from "./arguments.mjs";

/**
 * Answers each request with what `respond(message, body)` responds, prints the address, and ends the process when standard input closes. Bodies are
 * texts, because a stream takes several times as long as the guest.
 *
 * @param {(message: import("node:http").IncomingMessage, body: string) => Promise<Response>} respond
 */
export function serve(respond) {
  const server = createServer(async (message, answer) => {
    const response = await respond(message, await text(message));
    answer.statusCode = response.status;
    answer.setHeaders(response.headers);
    answer.end(await response.text());
  });
  server.listen({ host: "127.0.0.1", port: 0, backlog }, () => console.log(`http://127.0.0.1:${server.address().port}`));
  process.stdin.resume();
  process.stdin.on("end", () => process.exit(0));
}

/** The body of a message. */
function text(message) {
  return new Promise((resolve, reject) => {
    const parts = [];
    message.on("data", (part) => parts.push(part));
    message.on("end", () => resolve(Buffer.concat(parts).toString()));
    message.on("error", reject);
  });
}
