// The requests to a running app.

import assert from "node:assert/strict";
import { once } from "node:events";
import { get } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";

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

/** Of three requests, two pass. If the app knows its clients, another one is not affected. `error` tells a denial by its body. */
export async function admitsTwo(port, path, { knowsClients = true, error = ({ error }) => error === "rate_limited" } = {}) {
  const responses = [];
  for (let nth = 0; nth < 3; nth++) responses.push(await ask(port, path, 1));
  const [first, , third] = responses;
  const told = responses.map(({ status, body }) => `${status} ${body.slice(0, 200)}`).join("\n");
  assert.deepEqual(responses.map(({ status }) => status), [200, 200, 429], `${path}:\n${told}`);
  assert.deepEqual(responses.map(({ headers }) => headers["x-ratelimit-remaining"]), ["1", "0", "0"], path);
  assert.ok(responses.every(({ headers }) => headers["ratelimit"] && headers["ratelimit-policy"]), `${path}: ratelimit is missing`);
  assert.match(first.body, /hello/, path);
  assert.ok(error(JSON.parse(third.body)), `${path}: ${third.body}`);
  assert.ok(Number(third.headers["retry-after"]) > 0, `${path}: retry-after is missing`);
  if (knowsClients && process.platform === "linux") assert.equal((await ask(port, path, 2)).status, 200, `${path}: another client`);
}

/** A path is answered, as it is when nothing is limited. */
export async function answers(port, path) {
  const { status, body } = await ask(port, path, 1);
  assert.ok(status < 500, `${path}: ${status} ${body.slice(0, 200)}`);
}

/**
 * Of a user's messages, two pass on each connection, and three on all. A denied message is not charged to either. It opens the
 * connections with the app's own `ws`.
 */
export async function answersMessages(port, _path, { cwd }) {
  const { WebSocket } = createRequire(path.join(cwd, "index.js"))("ws");
  const connect = async (user) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/?user=${user}`);
    await once(socket, "open");
    return async () => {
      socket.send("you");
      const [message] = await once(socket, "message");
      return String(message);
    };
  };
  const [first, second, other] = [await connect("one"), await connect("one"), await connect("two")];
  const hello = "hello, you";
  assert.deepEqual([await first(), await first()], [hello, hello]);
  for (let nth = 0; nth < 3; nth++) {
    const { error, retryAfterMs } = JSON.parse(await first());
    assert.ok(error === "rate_limited" && retryAfterMs > 0, "a third message on one connection");
  }
  assert.equal(await second(), hello, "what was denied is not charged to the user");
  assert.equal(JSON.parse(await second()).error, "rate_limited", "a fourth message of one user");
  assert.equal(await other(), hello, "another user");
}

/** Of 1,000 tokens, each request is charged an estimate of 400, which its stream settles to 150. So the sixth is denied. */
export async function settles(port, path) {
  const ask = (user) => fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", headers: { "x-user": user }, body: "?".repeat(400) });
  for (const remaining of ["600", "450", "300", "150", "0"]) {
    const response = await ask("one");
    assert.deepEqual([response.status, response.headers.get("x-ratelimit-remaining")], [200, remaining], path);
    assert.equal(await response.text(), "hello");
  }
  const denied = await ask("one");
  assert.equal(denied.status, 429);
  assert.ok(Number(denied.headers.get("retry-after")) > 0, "retry-after is missing");
  assert.equal((await denied.json()).error, "rate_limited");
  assert.equal((await ask("two")).status, 200, "another user");
}
