// The requests to a running app.

import assert from "node:assert/strict";
import { get } from "node:http";

/** The fields in which platforms tell the client's address. No limiter may read `x-forwarded-for`. */
const fields = (address) => ({
  "x-vercel-forwarded-for": address,
  "x-nf-client-connection-ip": address,
  "cf-connecting-ip": address,
  "x-real-ip": address,
  "x-forwarded-for": `203.0.113.${Math.floor(Math.random() * 250)}`,
});

/** A request from one of the machine's loopback addresses, so that an app which reads the socket sees different clients. */
function ask(port, path, client) {
  const source = process.platform === "linux" ? { localAddress: `127.0.0.${client}` } : {};
  const options = { host: "127.0.0.1", port, path, headers: fields(`192.0.2.${client}`), agent: false, timeout: 30_000, ...source };
  return new Promise((resolve, reject) => {
    const request = get(options, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (text) => (body += text));
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, body }));
    });
    request.on("timeout", () => request.destroy(new Error(`no answer to ${path} in 30 s`)));
    request.on("error", reject);
  });
}

/** Waits until the app answers on `/`, which it does not limit. */
export async function ready(port, server) {
  for (const until = Date.now() + 120_000; Date.now() < until && server.running; ) {
    const response = await ask(port, "/", 1).catch(() => undefined);
    if (response && response.status < 500) {
      assert.deepEqual([response.status, response.headers["ratelimit"]], [200, undefined], "/ is not limited");
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(server.running ? "the app does not answer on /" : "the app has ended");
}

/** Of three requests, two pass. If the app knows its clients, another one is not affected. */
export async function admitsTwo(port, path, { knowsClients = true } = {}) {
  const responses = [];
  for (let nth = 0; nth < 3; nth++) responses.push(await ask(port, path, 1));
  const [first, , third] = responses;
  const told = responses.map(({ status, body }) => `${status} ${body.slice(0, 200)}`).join("\n");
  assert.deepEqual(responses.map(({ status }) => status), [200, 200, 429], `${path}:\n${told}`);
  assert.deepEqual(responses.map(({ headers }) => headers["x-ratelimit-remaining"]), ["1", "0", "0"], path);
  assert.ok(responses.every(({ headers }) => headers["ratelimit"] && headers["ratelimit-policy"]), `${path}: ratelimit is missing`);
  assert.match(first.body, /hello/, path);
  assert.equal(JSON.parse(third.body).error, "rate_limited", path);
  assert.ok(Number(third.headers["retry-after"]) > 0, `${path}: retry-after is missing`);
  if (knowsClients && process.platform === "linux") assert.equal((await ask(port, path, 2)).status, 200, `${path}: another client`);
}
